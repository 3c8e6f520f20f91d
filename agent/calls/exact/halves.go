package exact

import (
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Halves keep a snapshot from about the middle of what is recorded, whenever that ends: with a third of the time at least on
// either side.
type Halves struct {
	recorder *Recorder
	stop     chan struct{}
	stopped  sync.WaitGroup
	began    time.Time
	kept     Middles[*Snapshot]
}

// Halve begins to take snapshots: a second after now, three, seven and so on.
func (r *Recorder) Halve() *Halves {
	h := &Halves{recorder: r, stop: make(chan struct{}), began: time.Now()}
	h.stopped.Go(h.run)
	return h
}

func (h *Halves) run() {
	for wait := time.Second; ; wait *= 2 {
		select {
		case <-h.stop:
			return
		case <-time.After(wait):
		}
		if s, err := h.recorder.Snapshot(); err == nil {
			h.kept.Keep(s, time.Since(h.began))
		}
	}
}

// End ends that, and returns the snapshot from the middle, nil if there is none.
func (h *Halves) End() *Snapshot {
	close(h.stop)
	h.stopped.Wait()
	return h.kept.Middle(time.Since(h.began))
}

// Middles keep the last two of what is taken after a second, three, seven and so on.
type Middles[S any] struct{ last [2]timed[S] } // the younger one second

type timed[S any] struct {
	taken S
	after time.Duration // since the beginning
}

// Keep keeps what was taken that long after the beginning.
func (m *Middles[S]) Keep(s S, after time.Duration) { m.last = [2]timed[S]{m.last[1], {s, after}} }

// Middle is the last one after which a third of the length passed; the zero value if there is none.
func (m *Middles[S]) Middle(length time.Duration) S {
	if m.last[1].after <= length*2/3 {
		return m.last[1].taken
	}
	return m.last[0].taken
}

// samePhase is how much the calls of two halves of a recording have in common, by method, if both are of the same phase of the
// program or both of many whole iterations of it.
const samePhase = 80

// PhaseNote says that the calls before and after the middle of a recording differ: the recording covers part of a phase. It is
// "" if they do not.
func (s *Snapshot) PhaseNote(middle *Snapshot) string {
	if middle == nil {
		return ""
	}
	return PhaseNote(middle.Since(nil).methods(), s.Since(middle).methods())
}

// PhaseNote is Snapshot.PhaseNote of how often each method was called before and after the middle.
func PhaseNote[K comparable](before, after cct.Weights[K]) string {
	common := cct.Overlap(before, after)
	if common >= samePhase {
		return ""
	}
	return fmt.Sprintf("exact, but the recording covers only part of a phase: its two halves have %.0f %% of the calls in common, by method; "+
		"record whole iterations, or more of them, to get representative counts", common)
}

// methods are how often each method was called.
func (r *Recording) methods() cct.Weights[Method] {
	if r.Graph.Total() > 0 {
		return r.Graph.Callees()
	}
	all := cct.Weights[Method]{}
	tree := r.Tree()
	for id, n := range tree.Nodes() {
		if id != cct.Root {
			all[n.Key] += float64(n.Self)
		}
	}
	return all
}
