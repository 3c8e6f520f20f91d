// Package agentmaps has the maps of the agent's kernel side without its programs, for tests of what
// loads beside them: to verify the programs takes an emulator seconds.
package agentmaps

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// New returns the maps that other objects share with the agent's. They are closed with the test.
func New(t testing.TB) *bpf.Objects {
	t.Helper()
	spec, err := bpf.LoadProfile()
	if err != nil {
		t.Fatal(err)
	}
	o := &bpf.Objects{}
	t.Cleanup(func() { o.Close() })
	for name, to := range map[string]**ebpf.Map{
		"events": &o.Events, "nmi_events": &o.NmiEvents, "counters": &o.Counters, "tick_counts": &o.TickCounts,
		"processes": &o.Processes, "epochs": &o.Epochs,
		"pids": &o.Pids, "ended_pids": &o.EndedPids, "seen_methods": &o.SeenMethods, "known_threads": &o.KnownThreads,
	} {
		*to = load(t, spec, name)
	}
	return o
}

// Heaps returns the map of guests' heaps, which the programs behind probes of events have. It is
// closed with the test.
func Heaps(t testing.TB) *ebpf.Map {
	t.Helper()
	spec, err := bpf.LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	m := load(t, spec, "heaps")
	t.Cleanup(func() { m.Close() })
	return m
}

func load(t testing.TB, spec *ebpf.CollectionSpec, name string) *ebpf.Map {
	t.Helper()
	if spec.Maps[name] == nil {
		t.Fatalf("no map %s", name)
	}
	m, err := ebpf.NewMap(spec.Maps[name])
	if err != nil {
		t.Fatalf("create map %s: %v", name, err)
	}
	return m
}
