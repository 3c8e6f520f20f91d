package agent

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// Windows close while samples arrive, names are forgotten, and VMs come and go: each window has all of its samples.
func TestCloseWhileDraining(t *testing.T) {
	for _, mode := range []profile.ContextMode{profile.ContextPartial, profile.ContextChain} {
		a, w := newContextAgent(t, Options{Contexts: mode, CheckContexts: true})
		p := a.attach(7)
		a.nameCount.Add(fold.MaxNames / 2) // so many that they are trimmed
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
				rec.attachment = p.Attachment.Load()
				a.feed(rec)
				if i%100 == 0 {
					a.mu.Lock()
					a.trim(p)
					a.mu.Unlock()
				}
			}
		})
		results := make(chan string, 64)
		for range 2 {
			closers.Go(func() {
				for range 8 {
					a.mu.Lock()
					own := newWindow(a.Agent, nil)
					a.windows[own] = struct{}{}
					for own.folded < 200 {
						a.mu.Unlock()
						a.mu.Lock()
					}
					delete(a.windows, own)
					a.closing[own] = struct{}{}
					a.mu.Unlock()
					if mode == profile.ContextChain {
						a.place(own)
					}
					counts := profile.Counts{Truncated: map[string]uint64{}}
					var samples uint64
					for _, thread := range p.Profile(own.processes[p], &counts).Threads {
						samples += thread.Tree.Total()
					}
					c := a.Agent.contextsOf(p, own.processes[p])
					a.empty(own.processes[p])
					if samples != own.folded || c.Walked+c.Linked != samples || c.Linked != c.Check.Samples {
						results <- fmt.Sprintf("%v: %d samples of %d: %+v, %+v", mode, samples, own.folded, *c, *c.Check)
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
		a.drop(w)
	}
}
