package probes

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A kernelSide is an agent's events with a kernel side of its own, and this test's executable as a
// library.
type kernelSide struct {
	*Probes
	file *os.File
}

func newKernelSide(t *testing.T) *kernelSide {
	t.Helper()
	needs.Root(t, "attaching to probes")
	o, err := bpf.Load(bpf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	config := Config{
		Log: slog.New(slog.DiscardHandler), Objects: o,
		GuestTimes: func() budget.Times { return nil },
		Flush:      func(context.Context) error { return nil }, // nothing is in the ring
	}
	k := &kernelSide{Probes: &Probes{config: config, uprobes: attach.NewUprobes(), recording: true,
		attached: make(chan struct{}, 1),
		used:     budget.Times{}, cookies: newCookies(), draw: func(int) int { return 0 },
		Options: Options{Budget: 0.002 / leastBudget}}}
	if k.Programs, err = o.LoadProbes(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Programs.Close() })
	if k.file, err = os.Open("/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.file.Close() })
	return k
}

var probedTimes int

// probed has the probes. The tests count how often it runs. It does not check its stack's bound,
// unlike code for the race detector: a goroutine that is preempted there restarts the function, and
// hits the probe again.
//
//go:noinline
//go:nosplit
func probed() { probedTimes++ }

// find finds the place in probed.
func (k *kernelSide) find(t *testing.T) []probesite.Site {
	t.Helper()
	pc := uint64(reflect.ValueOf(probed).Pointer())
	maps, err := proc.DefaultRoot.Maps(os.Getpid(), proc.Executable)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if pc >= m.Start && pc < m.Limit {
			return []probesite.Site{{Offset: pc - m.Start + m.Offset, Address: pc}}
		}
	}
	t.Fatal("this test's code is in no mapping")
	return nil
}

// plan returns a plan whose probes are all in probed.
func (k *kernelSide) plan(t *testing.T, kind profile.EventKind, programs ...*ebpf.Program) *attachedPlan {
	t.Helper()
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	p := &attachedPlan{eventPlan: eventPlan{kind: kind, of: "events of tests"}, file: file, every: 1}
	sites := k.find(t)
	for i, program := range programs {
		p.probes = append(p.probes, plannedProbe{
			name: fmt.Sprint("probe ", i), program: program,
			find: func(*probesite.Finder) ([]probesite.Site, error) { return sites, nil },
		})
	}
	k.Options.Kinds[kind] = true
	t.Cleanup(func() { p.close() })
	return p
}

// place finds the sites of plans and attaches them.
func (k *kernelSide) place(t *testing.T, plans ...*attachedPlan) {
	t.Helper()
	for _, p := range plans {
		if err := p.find(nil); err != nil {
			t.Fatal(err)
		}
		if err := p.register(k.register); err != nil {
			t.Fatal(err)
		}
		if err := p.attach(k.uprobes); err != nil {
			t.Fatal(err)
		}
	}
}

// enrol finds the sites of plans, observes and governs them.
func (k *kernelSide) enrol(t *testing.T, plans ...*attachedPlan) {
	t.Helper()
	k.plans = plans
	for _, p := range plans {
		if err := p.find(nil); err != nil {
			t.Fatal(err)
		}
		if err := p.register(k.register); err != nil {
			t.Fatal(err)
		}
		p.cover.Begin(0, nil) // long ago: no plan is young
		p.cover.End(0)
		if err := k.appear(p, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// hits returns the number of hits of all probes.
func (k *kernelSide) hits(t *testing.T) uint64 {
	t.Helper()
	c, err := k.config.Objects.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	return c[bpf.ProbeHits]
}

// openSelf opens this test's executable.
func openSelf(t *testing.T) (*elffile.File, *os.File) {
	t.Helper()
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := elffile.Open(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return lib, f
}
