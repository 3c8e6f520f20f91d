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
	last     [2]timedSnapshot // the younger one second
}

type timedSnapshot struct {
	*Snapshot
	after time.Duration // since the beginning
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
			h.last = [2]timedSnapshot{h.last[1], {s, time.Since(h.began)}}
		}
	}
}

// End ends that, and returns the snapshot from the middle, nil if there is none.
func (h *Halves) End() *Snapshot {
	close(h.stop)
	h.stopped.Wait()
	return h.middle(time.Since(h.began))
}

// middle is the last snapshot after which a third of the time passed.
func (h *Halves) middle(length time.Duration) *Snapshot {
	if h.last[1].after <= length*2/3 {
		return h.last[1].Snapshot
	}
	return h.last[0].Snapshot
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
	common := cct.Overlap(middle.Since(nil).methods(), s.Since(middle).methods())
	if common >= samePhase {
		return ""
	}
	return fmt.Sprintf("exact, of part of a phase: the calls of the first and of the second half of the recording have %.0f %% in common, by "+
		"method; count whole iterations, or more of them, if the counts are to stand for the program", common)
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
