package exact

import (
	"fmt"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Halves keep a snapshot from about the middle of a recording, whose length need not be known: at
// least a third of the time is on either side of it.
type Halves struct {
	recorder *Recorder
	stop     chan struct{}
	stopped  sync.WaitGroup
	began    time.Time
	kept     Middles[*Snapshot]
}

// Halve begins to take snapshots: 1, 3, 7, ... seconds from now.
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

// End stops taking snapshots. It returns the one from the middle, nil if there is none.
func (h *Halves) End() *Snapshot {
	close(h.stop)
	h.stopped.Wait()
	return h.kept.Middle(time.Since(h.began))
}

// Middles keep the last two snapshots, which are taken after 1, 3, 7, ... seconds.
type Middles[S any] struct{ last [2]timed[S] } // second is the newer one

type timed[S any] struct {
	taken S
	after time.Duration // since the beginning
}

// Keep stores a snapshot that was taken that long after the beginning.
func (m *Middles[S]) Keep(s S, after time.Duration) { m.last = [2]timed[S]{m.last[1], {s, after}} }

// Middle returns the last snapshot after which a third of the length remained; the zero value if
// there is none.
func (m *Middles[S]) Middle(length time.Duration) S {
	if m.last[1].after <= length*2/3 {
		return m.last[1].taken
	}
	return m.last[0].taken
}

// samePhase is the overlap by method, in percent, above which two halves of a recording count as
// the same phase of the program, or as many whole iterations of it each.
const samePhase = 80

// PhaseNote reports that the calls before and after the middle of a recording differ: then it
// covers only part of a phase. It returns "" if they do not differ.
func (s *Snapshot) PhaseNote(middle *Snapshot) string {
	if middle == nil {
		return ""
	}
	return PhaseNote(middle.Since(nil).methods(), s.Since(middle).methods())
}

// PhaseNote is Snapshot.PhaseNote for the counts of each method's calls before and after the
// middle.
func PhaseNote[K comparable](before, after cct.Weights[K]) string {
	common := cct.Overlap(before, after)
	if common >= samePhase {
		return ""
	}
	return fmt.Sprintf("exact, but the recording covers only part of a phase: its two halves have %.0f %% of the "+
		"calls in common, by method; "+
		"record whole iterations, or more of them, to get representative counts", common)
}

// methods returns how often each method was called.
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
