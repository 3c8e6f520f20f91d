package guest

import (
	"slices"
	"testing"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A versionedVM is a VM whose compilations are all C2's, of a method with the name of their compile
// id.
type versionedVM struct {
	vmruntime.Process
	givenUp map[uint32]bool
	traps   map[uint64]vmruntime.Traps
}

func (g *versionedVM) Described(s vmruntime.Site) (vmruntime.Compilation, error) {
	return vmruntime.Compilation{Addr: uint64(s.Version) << 12, Begin: s.PC, End: s.PC + 100, Version: s.Version,
		Method: uint64(s.Version),
		Level:  4, Tier: vmruntime.TierC2, EntryBCI: -1, InUse: !g.givenUp[s.Version]}, nil
}

func (g *versionedVM) Announced(l vmruntime.CodeLoad) vmruntime.Frame {
	return vmruntime.Frame{Function: l.Class + "." + l.Name}
}

func (g *versionedVM) Inlined(s vmruntime.Site) ([]uint64, []string, error) {
	return []uint64{uint64(s.Version) + 1<<40}, []string{"a.Inlined.get"}, nil
}

func (g *versionedVM) States(list []vmruntime.Compilation) (states []vmruntime.CodeState, _ error) {
	for _, c := range list {
		state := vmruntime.CodeInUse
		if g.givenUp[c.Version] {
			state = vmruntime.CodeGivenUp
		}
		states = append(states, state)
	}
	return states, nil
}

func (g *versionedVM) Traps(methods []uint64) (map[uint64]vmruntime.Traps, error) {
	return g.traps, nil
}

func newVersioned() (*versionedVM, *VM, *Process) {
	guest := &versionedVM{givenUp: map[uint32]bool{}, traps: map[uint64]vmruntime.Traps{}}
	g := &VM{Guest: guest, mapping: unique.Make(symbol.Mapping{File: "[jit:HotSpot]", Start: 1, Limit: 1 << 20}),
		runtime: bridge.Runtime{}}
	return guest, g, asked(1)
}

// sampled names a frame of a version of a method.
func sampled(p *Process, g *VM, id uint32, function string) symbol.Mapping {
	site := vmruntime.Site{Kind: vmruntime.Compiled, Version: id, PC: uint64(id) << 8}
	return p.codeMapping(g, site, []vmruntime.Frame{{Function: "a.Inlined.get"}, {Function: function}}).Value()
}

func (p *Process) follow(g *VM) error { return p.versions.refresh(g.Guest.(vmruntime.VersionReader)) }

// The mapping of a frame names its version; the version says what was compiled, and why it was
// given up.
func TestVersions(t *testing.T) {
	guest, g, p := newVersioned()
	p.announced(g, vmruntime.CodeLoad{Version: 6, Begin: 6 << 8, Size: 50, Class: "a.Main", Name: "run",
		At: 3 * time.Second})
	p.announced(g, vmruntime.CodeLoad{Version: 8, Begin: 8 << 8, Size: 50, Class: "a.Main", Name: "other",
		At: 4 * time.Second})
	first := sampled(p, g, 7, "a.Main.run")
	if again := sampled(p, g, 7, "a.Main.run"); first.Version != 7 || first != again ||
		first.WithoutVersion() != g.mapping.Value() {
		t.Errorf("mapping %+v, then %+v", first, again)
	}
	guest.traps[7], guest.traps[7+1<<40] = vmruntime.Traps{Reasons: map[string]int{"null_check": 2}, Decompiles: 1},
		vmruntime.Traps{}
	if err := p.follow(g); err != nil {
		t.Fatal(err)
	}
	guest.givenUp[7] = true
	guest.traps[7] = vmruntime.Traps{Reasons: map[string]int{"null_check": 2, "unstable_if": 1}, Decompiles: 2}
	guest.traps[7+1<<40] = vmruntime.Traps{Reasons: map[string]int{"class_check": 5}}
	if err := p.follow(g); err != nil {
		t.Fatal(err)
	}
	list, beyond := p.Versions(map[uint32]struct{}{7: {}}, 0)
	if len(list) != 2 || beyond != 0 || list[0].Version != 6 || list[1].Version != 7 {
		t.Fatalf("%d beyond, versions %+v", beyond, list)
	}
	if v := list[0]; v.Level != 4 || v.Since != 3*time.Second || !v.Announced || v.Sampled ||
		v.State != vmruntime.CodeInUse {
		t.Errorf("announced %+v", v)
	}
	want := []Trap{{"a.Inlined.get", "class_check", 5}, {"a.Main.run", "unstable_if", 1}}
	if v := list[1]; v.Function != "a.Main.run" || v.State != vmruntime.CodeGivenUp || v.Until < v.InUse ||
		v.InUse == 0 || v.Decompiles != 2 ||
		!slices.Equal(v.Traps, want) || !slices.Equal(v.Inlined, []string{"a.Inlined.get"}) {
		t.Errorf("sampled %+v, traps %+v", v, v.Traps)
	}
}

// A process that compiles without end costs no more than a stated number of versions.
func TestVersionsBounded(t *testing.T) {
	guest, g, p := newVersioned()
	for id := uint32(1); id <= 3*maxAnnounced; id++ {
		p.announced(g, vmruntime.CodeLoad{Version: id, Class: "a.Main", Name: "run"})
	}
	if n := len(p.versions.announced); n != maxAnnounced {
		t.Errorf("%d announced", n)
	}
	for id := uint32(1); id <= MaxVersions+10; id++ {
		m := sampled(p, g, 10000+id, "a.Main.run")
		if named := m.Version != 0; named != (id <= MaxVersions) {
			t.Fatalf("version %d: mapping %+v", id, m)
		}
	}
	if list, beyond := p.Versions(map[uint32]struct{}{10001: {}}, 0); beyond != 10 || len(list) < MaxVersions {
		t.Errorf("%d versions, %d beyond", len(list), beyond)
	}
	guest.givenUp[10002] = true
	if err := p.follow(g); err != nil {
		t.Fatal(err)
	}
	if m := sampled(p, g, 20000, "a.Main.run"); m.Version != 20000 || p.versions.sampled[10002] != nil ||
		len(p.versions.sampled) != MaxVersions {
		t.Errorf("mapping %+v, %d versions", m, len(p.versions.sampled))
	}
}
