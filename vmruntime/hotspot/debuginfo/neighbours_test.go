package debuginfo

import (
	"fmt"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// TestShared: an instruction without a position is in what the places around have in common.
func TestShared(t *testing.T) {
	w := vmtest.NewScopeWriter(0, 0x1000, 0x2000, 0x3000, 0x4000)
	in := func(outer uint32, bci int, slot uint32, inner int) uint32 {
		return w.Scope(w.Scope(outer, slot-1, bci), slot, inner)
	}
	a, b := in(0, 3, 2, 5), in(0, 3, 2, 9) // two places in 2000, which is inlined at 3
	sibling := w.Scope(w.Scope(0, 1, 3), 3, 1)
	other := w.Scope(w.Scope(0, 1, 7), 2, 5) // 2000 inlined elsewhere
	for _, test := range []struct {
		name   string
		scopes []uint32 // at 10, 20, and so on
		offset int32
		want   string
	}{
		{"the same place", []uint32{a, a, a, a, a, a}, 35, "in 2000@5 1000@3"},
		{"the same method", []uint32{a, b, a, a, b, a}, 35, "in 2000@? 1000@3"},
		{"siblings", []uint32{a, a, a, sibling, a, a}, 35, "in 1000@3"},
		{"inlined twice", []uint32{a, a, a, other, a, a}, 35, "in 1000@?"},
		{"only beyond the neighbours", []uint32{sibling, a, a, a, a, a, a, sibling}, 45, "in 2000@5 1000@3"},
		{"at the third neighbour", []uint32{sibling, a, a, a, a, a}, 35, "in 1000@3"},
		{"nothing is known of one", []uint32{a, a, 0, a, a, a}, 35, "in "},
		{"behind the last", []uint32{a, a, a}, 35, "in 2000@5 1000@3"},
		{"before the first", []uint32{a, b, a}, 5, "in 2000@? 1000@3"},
		{"none", nil, 5, "in "},
	} {
		w.PCs = nil
		for i, scope := range test.scopes {
			w.Position(int32(10*(i+1)), scope)
		}
		table, err := Decode(raw(w), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := table.text(table.At(test.offset)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestForgetDefault: a scope that every third position between safepoints has says nothing; its
// neighbours do.
func TestForgetDefault(t *testing.T) {
	for _, usual := range []int{4, 12} { // how many of the 24 positions have the scope late
		t.Run(fmt.Sprint(usual), func(t *testing.T) {
			w := vmtest.NewScopeWriter(0, 0x1000, 0x2000, 0x3000)
			late := w.Scope(w.Scope(0, 1, 90), 3, 4)
			safepoints := []int32{200} // with the usual scope
			for i := range int32(24) {
				scope := w.Scope(w.Scope(0, 1, 3), 2, int(i))
				if i%6 < int32(usual/4) {
					scope = late
				}
				w.Position(20+10*i, scope)
			}
			table, err := Decode(raw(w), 0)
			if err != nil {
				t.Fatal(err)
			}
			table.Complete = true
			table.ForgetDefault(safepoints)
			forgotten := usual == 12
			if got := table.At(80); got.Recorded == forgotten {
				t.Errorf("at a position with the scope of %d of 24: %s", usual, table.text(got))
			}
			if got, want := table.text(table.At(79)), "in 2000@? 1000@3"; forgotten && got != want {
				t.Errorf("before one: %s, want %s", got, want)
			}
			if got := table.At(110); !got.Recorded {
				t.Errorf("at another position: %s", table.text(got))
			}
			if got := table.At(200); !got.Recorded {
				t.Errorf("at a safepoint: %s", table.text(got))
			}
		})
	}
}
