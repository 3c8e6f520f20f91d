package fold

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Windows close while samples arrive, names are forgotten, and VMs come and go: each window has all
// of its samples.
func TestCloseWhileDraining(t *testing.T) {
	for _, mode := range []profile.ContextMode{profile.ContextPartial, profile.ContextChain} {
		a, w := newContextState(t, JoinOptions{Contexts: mode, Check: true})
		p := a.attach(7)
		a.state().Names += MaxNames / 2 // so many that they are trimmed
		var drainer, closers sync.WaitGroup
		stop := make(chan struct{})
		drainer.Go(func() {
			r := rand.New(rand.NewPCG(1, 1))
			g := newModelGuest(r, false)
			k := &modelKernel{rand: r, rates: a.rates, check: true, kept: map[uint32]*modelKept{}}
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				thread := g.run()
				rec := k.chain(thread, false)
				if mode == profile.ContextPartial {
					rec = k.partial(thread, false, false)
				}
				if i%1000 == 999 {
					p.Slot.Store(8)
					p.Attachment.Store(p.Attachment.Load() + 1)
				}
				rec.Attachment = p.Attachment.Load()
				a.feed(rec)
				if i%100 == 0 {
					a.owner.Do(func(s *State) { s.Trim(p) })
				}
			}
		})
		results := make(chan string, 64)
		for range 2 {
			closers.Go(func() {
				for range 8 {
					own := NewWindow(nil)
					a.owner.Do(func(s *State) { s.Open(own) })
					for Get(a.owner, func(*State) uint64 { return own.Folded }) < 200 {
					}
					a.owner.Do(func(s *State) { s.Close(own) })
					if mode == profile.ContextChain {
						a.place(own)
					}
					counts := profile.Counts{Truncated: map[string]uint64{}}
					var samples uint64
					for _, thread := range p.Profile(own.Processes[p], &counts).Threads {
						samples += thread.Tree.Total()
					}
					c := a.owner.Contexts(p, own.Processes[p], a.opt.Contexts, a.opt.Check)
					a.owner.Do(func(s *State) { s.Empty(own.Processes[p]) })
					if samples != own.Folded || c.Walked+c.Linked != samples || c.Linked != c.Check.Samples {
						results <- fmt.Sprintf("%v: %d samples of %d: %+v, %+v", mode, samples, own.Folded, *c,
							*c.Check)
					}
					a.release(own)
				}
			})
		}
		closers.Wait()
		close(stop)
		drainer.Wait()
		close(results)
		for text := range results {
			t.Error(text)
		}
		a.release(w)
	}
}
