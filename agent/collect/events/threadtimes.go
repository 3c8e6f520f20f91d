package events

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A reading is how long threads had been on a CPU at some time.
type reading struct {
	at time.Duration
	on map[uint32]fold.ThreadOn // by thread
}

// onOf is how long threads have been on a CPU.
func onOf(threads []bpf.OffCPUThread) map[uint32]fold.ThreadOn {
	on := make(map[uint32]fold.ThreadOn, len(threads))
	for i := range threads {
		a := &threads[i]
		on[a.Tid] = fold.ThreadOn{Born: a.Born, On: time.Duration(a.On)}
	}
	return on
}

// Opened implements source.Opener: how long threads have been on a CPU when the window begins.
func (e *Source) Opened(_ *fold.State, window *fold.Window) {
	if e.waits == nil {
		return
	}
	threads, err := e.waits.look()
	if err != nil {
		e.services.Log.Error("cannot read how long threads have been on a CPU", "err", err)
		return
	}
	window.OnBefore = onOf(threads)
}

// addTimes adds how long threads existed, and ran if that is known, to a window that ends then. It
// is known of windows that begin when recording does, or where the last one ended, and where
// somebody looked.
func (w *waits) addTimes(s *fold.State, window *fold.Window, threads []bpf.OffCPUThread, end time.Duration) {
	before, from := w.before, max(window.Began, w.begun)
	known := true
	switch {
	case window.OnBefore != nil:
		before.on = window.OnBefore
	case window.Began <= w.begun:
		before = reading{}
	case window.Began != before.at:
		known = false
	}
	now := reading{end, onOf(threads)}
	if window.Continued {
		w.before = now
	}
	booted := proc.SinceBoot() - proc.Monotonic() // how much that clock is ahead: the machine was suspended
	for i := range threads {
		a := &threads[i]
		if !window.Wants(int(a.Pid)) {
			continue
		}
		existed := end - max(from, time.Duration(a.Born)-booted)
		if existed <= 0 {
			continue
		}
		p := s.Process(&bpf.Header{Pid: a.Pid, Tid: a.Tid, Start: a.Start, Exec: a.Exec})
		name := p.NameOf(a.Tid, a.Comm[:])
		if !known {
			window.AddThread(p, a.Tid, name, end-existed, end)
			continue
		}
		on := now.on[a.Tid].On
		if b := before.on[a.Tid]; b.Born == a.Born {
			on -= b.On
		}
		window.AddThreadTime(p, profile.ThreadTime{TID: int(a.Tid), Name: name, Wall: existed,
			On: min(max(on, 0), existed)}, end)
	}
	if known {
		window.AddEndedTimes()
	}
}
