package hotspot

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// A countedGuest is a recorded guest whose memory a test may change.
type countedGuest struct {
	*Process
	mem     *vmtest.Memory
	epoch   uint32
	method  map[string]uint64
	counted *calldata.Schema
}

func newCountedGuest(t testing.TB, name string) *countedGuest {
	t.Helper()
	r := loadRecording(t, name+".gz")
	g := &countedGuest{mem: r.memory(), method: make(map[string]uint64)}
	vm, err := r.image().Attach(vmruntime.Target{Memory: g.mem, Bias: r.Bias, Epoch: func() uint32 { return g.epoch }})
	if err != nil {
		t.Fatal(err)
	}
	g.Process = whole(t, vm)
	g.counted = g.calldata(t)
	var places []vmruntime.Scope
	if err := g.Compilations(func(c vmruntime.Compilation) bool {
		named, _ := g.Versions.Find(c.Version, c.Begin)
		if !strings.HasPrefix(named.Class, "hotspot/CallsGuest") {
			return true
		}
		tree, err := g.InlineTree(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range tree.Nodes {
			places = append(places, vmruntime.Scope{Method: n.Method, BCI: -1})
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	frames, err := g.Names(places)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if name, ok := strings.CutPrefix(f.Function, "hotspot.CallsGuest"); ok {
			g.method[name] = places[i].Method
		}
	}
	return g
}

// profile reads one profile, nil if it is absent.
func (g *countedGuest) profile(t testing.TB, name string) *vmruntime.MethodProfile {
	t.Helper()
	m := g.method[name]
	if m == 0 {
		t.Fatalf("the guest has no %s", name)
	}
	profiles, err := g.Profiles([]uint64{m, m, 0, 0xdead0000})
	if err != nil {
		t.Fatal(err)
	}
	if len(profiles) > 1 {
		t.Errorf("%d profiles of one method", len(profiles))
	}
	return profiles[m]
}

// TestProfileGoesOn: counts are read every time, although what can be called is not.
func TestProfileGoesOn(t *testing.T) {
	for name := range callRecordings {
		g := newCountedGuest(t, name)
		before := g.profile(t, ".two")
		data, err := g.Memory.Word(g.counted.MethodData.At(g.method[".two"]))
		if err != nil {
			t.Fatal(err)
		}
		invocations := g.mem.At(g.counted.Invocations.At(data), 4)
		binary.LittleEndian.PutUint32(invocations, uint32(before.Invocations+5)<<g.counted.CountShift|1)
		const entryHeader = 8                                      // bytes
		others := g.mem.At(data+g.counted.Header()+entryHeader, 8) // calls of receivers that are not told apart
		binary.LittleEndian.PutUint64(others, 15)
		after := g.profile(t, ".two")
		if after.Invocations != before.Invocations+5 || after.Calls[0].Count != before.Calls[0].Count+15 {
			t.Errorf("%s: before %+v, after %+v", name, before, after)
		}
	}
}

// TestProfileWithoutData: a method whose MethodData is not its own, or makes no sense, has calls
// but no counts.
func TestProfileWithoutData(t *testing.T) {
	for name := range callRecordings {
		for what, spoil := range map[string]func(g *countedGuest, data uint64){
			"of another": func(g *countedGuest, data uint64) { g.mem.At(g.counted.Owner.At(data), 8)[0] ^= 8 },
			"too long": func(g *countedGuest, data uint64) {
				g.mem.At(g.counted.DataSize.At(data),
					4)[3] = 0x7f
			},
			"no tag": func(g *countedGuest, data uint64) { g.mem.At(data+g.counted.Header(), 1)[0] = 0 },
			"none": func(g *countedGuest, data uint64) {
				clear(g.mem.At(g.counted.MethodData.At(g.method[".two"]), 8))
			},
		} {
			g := newCountedGuest(t, name)
			data, err := g.Memory.Word(g.counted.MethodData.At(g.method[".two"]))
			if err != nil {
				t.Fatal(err)
			}
			spoil(g, data)
			p := g.profile(t, ".two")
			if p == nil || p.Counted || p.Invocations != 0 || len(p.Calls) != 1 || p.Calls[0].Count != 0 ||
				p.Before == 0 {
				t.Errorf("%s, data %s: %+v", name, what, p)
			}
		}
	}
}

// TestProfileOfAnother: when another method lies at the address of one that was known, the first
// answer is that the method is gone, the next ones are about the new one. That is looked at when
// classes were unloaded, and of methods whose profile was not read before.
func TestProfileOfAnother(t *testing.T) {
	for name := range callRecordings {
		for _, known := range []string{"by its profile", "by its code"} {
			g := newCountedGuest(t, name)
			one, half := g.method[".one"], g.method[".half"]
			if known == "by its profile" {
				for range 2 {
					g.profile(t, ".one")
				}
			} // else what newCountedGuest asked for has told who it is
			g.profile(t, ".half")
			for _, f := range []vmstructs.Field{g.field(t, "Method._constMethod"), g.counted.MethodData} {
				copy(g.mem.At(f.At(one), vmstructs.WordSize), g.mem.At(f.At(half), vmstructs.WordSize))
			}
			if known == "by its profile" {
				if p := g.profile(t, ".one"); p == nil || p.Calls[0].Kind != vmruntime.VirtualCall {
					t.Errorf("%s: no class was unloaded, and there is %+v", name, p)
				}
				g.epoch++
			}
			if p := g.profile(t, ".one"); p != nil {
				t.Errorf("%s, known %s: %+v", name, known, p)
			}
			if p := g.profile(t, ".one"); p == nil || p.Calls[0].Function != "hotspot.CallsGuest.leaf" {
				t.Errorf("%s, known %s, asked again: %+v", name, known, p)
			}
			frames, err := g.Names([]vmruntime.Scope{{Method: half, BCI: 7}, {Method: 0xdead0000}})
			if err != nil || frames[0].Function != "hotspot.CallsGuest.half" || frames[0].Line == 0 ||
				frames[1].Function != "" {
				t.Errorf("%s: names %+v, %v", name, frames, err)
			}
		}
	}
}

// TestProfilesUnsupported: without the fields that lead to counts there is an error that names
// them, and nothing else is lost.
func TestProfilesUnsupported(t *testing.T) {
	g := newCountedGuest(t, "testdata/calls17")
	g.Profiler.Resolve(&vmstructs.Tables{})
	_, err := g.Profiles([]uint64{g.method[".one"]})
	if err == nil || !strings.Contains(err.Error(), "MethodData._data_size") {
		t.Errorf("%v", err)
	}
}

// BenchmarkProfiles reads the profiles of a recorded guest, again and again: no time is spent in
// system calls.
func BenchmarkProfiles(b *testing.B) {
	for name := range callRecordings {
		b.Run(name, func(b *testing.B) {
			g := newCountedGuest(b, name)
			var methods []uint64
			for _, m := range g.method {
				methods = append(methods, m)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.Profiles(methods); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(methods)), "ns/method")
		})
	}
}
