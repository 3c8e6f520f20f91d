package fold

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A noRates accepts and ignores all rates.
type noRates struct{}

func (noRates) Put(any, any) error { return nil }

// chainOwner owns a state that chains contexts, with an open window.
func chainOwner(maxContexts int) (*Owner, *Window) {
	o, _ := ownerOf(StateOptions{
		MaxContexts: maxContexts,
		Join: JoinOptions{Contexts: profile.ContextChain, Rates: noRates{},
			SetSteady: func(uint64, bool) error { return nil }},
	})
	w := NewWindow(nil)
	o.Do(func(s *State) { s.Open(w) })
	return o, w
}

// feed folds samples of a process: walks, or links.
func feed(t *testing.T, o *Owner, user string, flags uint8, times int) (p *Process) {
	t.Helper()
	r := foldtest.Record{Identity: foldtest.Identity{PID: 100, Start: 5, Exec: 1}, Attachment: 7,
		Flags: bpf.SampleDepths | flags, User: user}
	if flags&bpf.SampleLink != 0 {
		r.End = bpf.EndKnown
	}
	for range times {
		err := o.Do(func(s *State) {
			var sample bpf.Sample
			if err := bpf.DecodeSample(r.Encode(), &sample); err != nil {
				t.Fatal(err)
			}
			p = s.Process(sample.Header)
			p.Slot.Store(7)
			p.Attachment.Store(7)
			s.Samples++
			s.Take(p, &sample)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// purge delivers a call for which the chain of p has no room.
func purge(s *State, p *Process) {
	p.Chaining.Chain.Limit = 1
	s.Joiner().LearnCall(p, guest.RawFrame{Frame: 1, Kind: guest.RawExact},
		guest.RawFrame{Frame: 2, Kind: guest.RawReturn}, 100, 50)
}

// eachLoan makes loans end after one step, until the test ends.
func eachLoan(t *testing.T) {
	was := loanTime
	loanTime = -1
	t.Cleanup(func() { loanTime = was })
}

// inTrees returns the weight of a window's trees, by certainty.
func inTrees(w *Window) (sum [profile.Certainties]uint64) {
	for _, threads := range w.Processes {
		for _, t := range threads {
			for i := range t.Trees {
				sum[i] += t.Trees[i].Total()
			}
		}
	}
	return sum
}

// Known contexts may be forgotten while a window is closing: before its samples are placed, or
// between two loans that place them. The samples are placed by what was known, each once.
func TestPurgeWhileClosing(t *testing.T) {
	eachLoan(t)
	const links = 20
	for at := range links + 2 { // loans before the purge
		o, w := chainOwner(1 << 20)
		var p *Process
		for i := range links {
			feed(t, o, fmt.Sprintf("0:1@16 1:%d@32 2:3@48", i+1), 0, 1)
			p = feed(t, o, fmt.Sprintf("1:%d@32 2:3@48", i+1), bpf.SampleLink, 3)
		}
		o.Do(func(s *State) { s.Close(w) })
		loans := 0
		var state *State
		o.Do(func(s *State) { state = s })
		o.PlaceAll(w, func(_ *Process, do func()) error {
			if loans == at {
				purge(state, p)
			}
			loans++
			do()
			return nil
		})
		if g := p.Chaining.Chain.Generation(); g != 1 {
			t.Fatalf("after %d loans: forgot %d times in %d", at, g, loans)
		}
		if got := inTrees(w); got[profile.Certain] != 4*links || profile.Certainties > 1 && got[profile.Unplaced] != 0 {
			t.Errorf("after %d loans: %v, want %d certain", at, got, 4*links)
		}
		o.Release(w)
		if n := Get(o, (*State).Contexts); n != 0 {
			t.Errorf("%d contexts are left", n)
		}
	}
}

// Measurements of a closed window use the contexts known before they were forgotten.
func TestPurgeWhileMeasuring(t *testing.T) {
	o, w := chainOwner(1 << 20)
	var p *Process
	for i := range 20 {
		p = feed(t, o, fmt.Sprintf("0:1@16 1:%d@32 2:3@48", i+1), 0, 1)
	}
	var links Tree
	for _, thread := range w.Processes[p] {
		links.Merge(&thread.Links)
	}
	whole, cut := profile.Contexts{}, profile.Contexts{}
	o.Do(func(s *State) {
		m := &measurement{known: p.Chaining, links: &links, to: &whole}
		m.finish()
		m = &measurement{known: p.Chaining, links: &links, to: &cut}
		m.step()
		p.measuring = map[*measurement]struct{}{m: {}}
		purge(s, p)
		m.finish()
	})
	if whole.BySite != cut.BySite || whole.ByDepth != cut.ByDepth || whole.BySite[0] == 0 {
		t.Errorf("%v, %v; want %v, %v", cut.ByDepth, cut.BySite, whole.ByDepth, whole.BySite)
	}
}

// Samples that cannot be placed are discarded, those placed before are kept: all are accounted for.
func TestPlacingFails(t *testing.T) {
	eachLoan(t)
	const links = 20
	for at := range links + 2 {
		o, w := chainOwner(1 << 20)
		for i := range links {
			feed(t, o, fmt.Sprintf("0:1@16 1:%d@32 2:3@48", i+1), 0, 1)
			feed(t, o, fmt.Sprintf("1:%d@32 2:3@48", i+1), bpf.SampleLink, 3)
		}
		o.Do(func(s *State) { s.Close(w) })
		loans := 0
		o.PlaceAll(w, func(_ *Process, do func()) error {
			if loans++; loans > at {
				return fmt.Errorf("it panicked")
			}
			do()
			return nil
		})
		var sum uint64
		for _, n := range inTrees(w) {
			sum += n
		}
		failed := w.Discarded[profile.Failed]
		if sum != w.Folded || w.Received != w.Folded+failed || failed != 3*uint64(min(links, links-max(0, at-1))) {
			t.Errorf("after %d loans: received %d, folded %d, failed %d; %d are in trees", at, w.Received, w.Folded,
				failed, sum)
		}
	}
}

// Contexts that samples get when a window closes count towards the bound.
func TestPlacingIsBounded(t *testing.T) {
	o, w := chainOwner(1 << 20)
	for i := range 20 {
		feed(t, o, fmt.Sprintf("0:1@16 1:%d@32 2:3@48", i+1), 0, 1)
		feed(t, o, fmt.Sprintf("1:%d@32 2:4@48", i+1), bpf.SampleLink, 3)
	}
	most := 0
	o.Do(func(s *State) {
		s.Close(w)
		s.opt.MaxContexts = s.contexts + 2
		most = s.opt.MaxContexts
	})
	o.PlaceAll(w, func(_ *Process, do func()) error {
		do()
		return nil
	})
	held := 0
	for _, threads := range w.Processes {
		for _, thread := range threads {
			held += thread.Contexts()
		}
	}
	// The stack that reaches the bound may be complete.
	if n := Get(o, (*State).Contexts); n != held || n != w.Contexts() || n > most+4 {
		t.Errorf("%d contexts are counted, %d are held, %d may be", n, held, most)
	}
	if w.Folded != 80 || w.Overflow() == 0 {
		t.Errorf("%d samples are folded, %d have not their whole context", w.Folded, w.Overflow())
	}
}
