package events

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A reading is how long threads had been on a CPU at some time, since recording began.
type reading struct {
	at time.Duration
	on map[uint32]threadOn // by thread
}

type threadOn struct {
	born uint64 // guards against a reused id
	on   time.Duration
}

// addTimes adds how long threads existed, and ran if that is known, to a window that ends then. It is known of windows that begin when
// recording does, or where the last one ended.
func (w *waits) addTimes(s *fold.State, window *fold.Window, threads []bpf.Away, end time.Duration) {
	before, from := w.before, max(window.Began, w.begun)
	known := true
	switch {
	case window.Began <= w.begun:
		before = reading{}
	case window.Began != before.at:
		known = false
	}
	now := reading{end, make(map[uint32]threadOn, len(threads))}
	for i := range threads {
		a := &threads[i]
		now.on[a.Tid] = threadOn{a.Born, time.Duration(a.On)}
	}
	if known {
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
		on := now.on[a.Tid].on
		if b := before.on[a.Tid]; b.born == a.Born {
			on -= b.on
		}
		window.AddThreadTime(p, profile.ThreadTime{TID: int(a.Tid), Name: name, Wall: existed, On: min(max(on, 0), existed)}, end)
	}
}
