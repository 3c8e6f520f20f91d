package hotspot

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// compiled returns the compilations of the guest's own methods, by name.
func (g *countedGuest) compiled(t testing.TB) map[string]vmruntime.Compilation {
	t.Helper()
	found := make(map[string]vmruntime.Compilation)
	for name, method := range g.method {
		current, err := g.Current([]uint64{method})
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := current[method]; ok {
			found[name] = c
		}
	}
	if len(found) < 5 {
		t.Fatalf("%d compiled methods", len(found))
	}
	return found
}

// A compilation is in use until its state says otherwise, and freed once something else is at its
// place.
func TestVersionStates(t *testing.T) {
	for name := range callRecordings {
		g := newCountedGuest(t, name)
		var list []vmruntime.Compilation
		for _, c := range g.compiled(t) {
			list = append(list, c)
		}
		b := g.Codes.Schema.Blob
		g.mem.At(b.State.At(list[1].Addr), 1)[0] = 1
		binary.LittleEndian.PutUint32(g.mem.At(b.CompileID.At(list[2].Addr), 4), list[2].Version+1)
		list[3].Addr = 16
		states, err := g.States(list)
		if err != nil {
			t.Fatal(err)
		}
		want := []vmruntime.CodeState{vmruntime.CodeInUse, vmruntime.CodeGivenUp, vmruntime.CodeFreed,
			vmruntime.CodeUnknown}
		for len(want) < len(list) {
			want = append(want, vmruntime.CodeInUse)
		}
		if !slices.Equal(states, want) {
			t.Errorf("%s: %v, want %v", name, states, want)
		}
	}
}

// Counts of traps are those of the method that the MethodData says that it is of.
func TestTraps(t *testing.T) {
	for name := range callRecordings {
		g := newCountedGuest(t, name)
		method := g.method[".two"]
		data := g.counts(t, ".two").Data
		s := &g.counted.Traps
		class := 0
		for number, reason := range s.Reasons {
			if reason == "class_check" {
				class = number
			}
		}
		if class == 0 || len(s.Reasons) < 20 || !s.Decompiles.Known {
			t.Fatalf("%s: reasons %v", name, s.Reasons)
		}
		before, err := g.Traps([]uint64{method})
		if err != nil || len(before) != 1 {
			t.Fatalf("%s: %v, %v", name, before, err)
		}
		g.mem.At(s.Histogram.At(data)+uint64(class), 1)[0] = 7
		binary.LittleEndian.PutUint32(g.mem.At(s.Decompiles.At(data), 4), 3)
		traps, err := g.Traps([]uint64{method, 16})
		if err != nil || len(traps) != 1 || traps[method].Reasons["class_check"] != 7 || traps[method].Decompiles != 3 {
			t.Errorf("%s: %+v, %v", name, traps, err)
		}
		g.mem.At(g.counted.Owner.At(data), 8)[0] ^= 8
		if traps, err := g.Traps([]uint64{method}); err != nil || len(traps) != 0 {
			t.Errorf("%s, of another method: %+v, %v", name, traps, err)
		}
	}
}

// What is inlined in a compilation is what its inline tree has.
func TestInlined(t *testing.T) {
	for name := range callRecordings {
		g := newCountedGuest(t, name)
		inlined := 0
		for of, c := range g.compiled(t) {
			methods, names, err := g.Inlined(vmruntime.Site{Kind: vmruntime.Compiled, PC: c.Begin, Version: c.Version})
			if err != nil || len(methods) != len(names) {
				t.Errorf("%s: %s: %v, %v, %v", name, of, methods, names, err)
				continue
			}
			tree, err := g.InlineTree(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range tree.Nodes[1:] {
				if n.Method != c.Method && !slices.Contains(methods, n.Method) {
					t.Errorf("%s: %s: %#x is not in %#x", name, of, n.Method, methods)
				}
			}
			inlined += len(methods)
		}
		if inlined == 0 {
			t.Errorf("%s: nothing is inlined", name)
		}
	}
}
