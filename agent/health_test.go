package agent

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events/probes"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

func TestMapsIn(t *testing.T) {
	a, b, c := new(ebpf.Map), new(ebpf.Map), new(ebpf.Map)
	type other struct {
		Heaps *ebpf.Map
		Name  string
	}
	got := mapsIn(bpf.CodeMapMaps{Epochs: a, Counters: b}, other{c, "no map"})
	if len(got) != 3 || !slices.Contains(got, a) || !slices.Contains(got, b) || !slices.Contains(got, c) {
		t.Errorf("%v of %v", got, []*ebpf.Map{a, b, c})
	}
}

// What objects share counts once, and what the probes of events have of their own counts.
func TestLiveMapBytes(t *testing.T) {
	needs.Root(t, "loading programs")
	objects, err := bpf.Load(bpf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer objects.Close()
	loaded, err := objects.LoadProbes()
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	memory := func(m *ebpf.Map) uint64 {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.Memlock()
		if !ok || n == 0 {
			t.Fatalf("the kernel does not say what %v takes", m)
		}
		return n
	}
	a := &Agent{services: &source.Services{Objects: objects}}
	before := a.mapBytes()
	if ring := memory(objects.Events); before < ring {
		t.Errorf("%d bytes, and the ring alone has %d", before, ring)
	}
	a.sources.first = []source.Source{&events.Source{Probes: &probes.Probes{Programs: loaded}}}
	var own uint64
	for _, m := range mapsIn(loaded.ProbeMaps) {
		own += memory(m)
	}
	for _, shared := range []*ebpf.Map{
		loaded.Events, loaded.NmiEvents, loaded.Counters, loaded.Processes, loaded.Epochs, loaded.Pids,
		loaded.EndedPids, loaded.SeenMethods,
		loaded.KnownThreads, loaded.Unwound, loaded.UnwindTables, loaded.UnwindWanted,
	} {
		own -= memory(shared)
	}
	if added := a.mapBytes() - before; added != own {
		t.Errorf("the probes add %d bytes, and have %d of their own", added, own)
	}
}
