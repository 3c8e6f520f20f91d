//go:build linux && amd64

package bpf

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// Hits of a process that is not observed are not among those that a budget is spent on. They are
// counted by process. A probe that is off counts nothing.
func TestKernelStrangers(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
		remove  func(*prober) *ebpf.Map // returns the map that the process is missing from
	}{
		{"not attached", Options{}, func(q *prober) *ebpf.Map { return q.o.Processes }},
		{"not chosen", Options{FilterByPID: true}, func(q *prober) *ebpf.Map { return q.o.Pids }},
	} {
		t.Run(test.name, func(t *testing.T) {
			q := newProber(t, test.options)
			pinned(t)
			pid := uint32(os.Getpid())
			if err := test.remove(q).Delete(pid); err != nil {
				t.Fatal(err)
			}
			counted := func() (spent, strange uint64) {
				var each []ProbeCount
				for cookie := range q.cookies + 1 {
					if err := q.p.ProbeCounts.Lookup(cookie, &each); err != nil {
						t.Fatal(err)
					}
					for _, c := range each {
						spent += c.Hits
					}
				}
				var s Stranger
				if q.p.Strangers.Lookup(pid, &s) != nil {
					return spent, 0
				}
				if s.Probe == 0 || s.Probe > q.cookies {
					t.Errorf("the last probe was %d", s.Probe)
				}
				return spent, s.Hits
			}
			probes := []*probe{q.attach(t, q.p.AllocationOutside, 1), q.attach(t, q.p.MonitorEnter, 1),
				q.attach(t, q.p.ParkBegin, 1)}
			for _, p := range probes {
				p.hit(arguments{})
				p.hit(arguments{})
			}
			if spent, strange := counted(); spent != 0 || strange != 6 {
				t.Errorf("%d hits count in the budget, %d as those of a stranger; want 0 and 6", spent, strange)
			}
			for _, p := range probes {
				if err := q.p.Probes.Put(p.cookie, &ProbeRate{Every: 1, Off: 1}); err != nil {
					t.Fatal(err)
				}
				p.hit(arguments{})
			}
			if spent, strange := counted(); spent != 0 || strange != 6 {
				t.Errorf("while they are off: %d and %d, want 0 and 6 still", spent, strange)
			}
			q.none(t, "nobody who passes is observed")
		})
	}
}
