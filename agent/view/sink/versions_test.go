package sink_test

import (
	"testing"
	"time"
	"unique"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// versions is a window with samples of two versions of one method at one address, as the VM used
// its memory again.
func versions() *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	proc := &profile.Process{PID: 7, Comm: "java", Threads: []*profile.Thread{{TID: 7, Tree: tree}}}
	for _, id := range []uint32{812, 2011} {
		code := unique.Make(symbol.Mapping{File: "[jit:HotSpot]", Start: 0x1000, Limit: 0x9000, Version: id})
		tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "app.Main.put", SystemName: "app.Main.put()V",
			Kind: symbol.KindJIT, Mapping: code, Address: 0x2000})}, uint64(id))
		proc.Versions = append(proc.Versions, profile.Version{ID: id, Level: 4, EntryBCI: -1, Method: "app.Main.put",
			SystemName: "app.Main.put()V",
			Since:      time.Second, State: profile.VersionInUse, Inlined: []string{"app.Shape.area"}, Decompiles: -1})
	}
	return &profile.Profile{Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second,
		Period: 10 * time.Millisecond, Processes: []*profile.Process{proc}}
}

// A profile distinguishes versions by mappings of the same name: pprof merges them by function, and
// keeps them apart when it merges files.
func TestVersions(t *testing.T) {
	p, err := sink.Pprof(versions(), sink.Time)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := pprof.Merge([]*pprof.Profile{p, p.Copy()})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*pprof.Profile{p, merged.Compact()} {
		if len(p.Function) != 1 || len(p.Sample) != 2 {
			t.Errorf("%d functions, %d samples", len(p.Function), len(p.Sample))
		}
		for _, s := range p.Sample {
			loc := s.Location[0]
			id, ok := stored.VersionOf(loc.Mapping)
			if !ok || s.Value[0]%int64(id) != 0 || loc.Mapping.File != "[jit:HotSpot]" || loc.Address != 0x2000 ||
				loc.Mapping.Start != 0x1000 {
				t.Errorf("%d samples are of version %d, %v: %+v", s.Value[0], id, ok, loc)
			}
		}
	}
	m, err := stored.MetadataOf(p)
	if err != nil || len(m.Versions) != 2 || m.Versions[1].ID != 2011 ||
		m.MethodName(m.Versions[1].Method) != "app.Main.put()V" ||
		m.MethodName(m.Versions[0].Inlined[0]) != "app.Shape.area" || len(m.Methods) != 2 {
		t.Errorf("%v: %+v, methods %q", err, m.Versions, m.Methods)
	}
}

// Of several windows the last says what became of a version, and the first when it appeared.
func TestVersionsOfWindows(t *testing.T) {
	first, second := versions(), versions()
	second.Start = second.Start.Add(10 * time.Second)
	old := &second.Processes[0].Versions[0]
	old.Since, old.State, old.InUse, old.Until = -9*time.Second, profile.VersionGivenUp, 2*time.Second, 3*time.Second
	w := sink.NewWindows(sink.Time)
	for _, p := range []*profile.Profile{first, second} {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	p, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	m, err := stored.MetadataOf(p)
	if err != nil || len(m.Versions) != 2 {
		t.Fatalf("%v: %+v", err, m)
	}
	if v := m.Versions[0]; v.Since != time.Second || v.State != int(profile.VersionGivenUp) ||
		*v.InUse != 12*time.Second || *v.Until != 13*time.Second {
		t.Errorf("%+v, in use %v, until %v", v, v.InUse, v.Until)
	}
	if v := m.Versions[1]; v.State != int(profile.VersionInUse) || v.Until != nil {
		t.Errorf("%+v", v)
	}
}
