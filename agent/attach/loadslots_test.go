package attach

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Sites of equal layout share a slot, and a slot is free when the last of them is gone.
func TestLoadSlots(t *testing.T) {
	layout := func(n int64) bpf.LoadSite { return bpf.LoadSite{Code: bpf.Operand{Displacement: n}} }
	s := newLoadSlots(2)
	take := func(n int64) uint32 {
		t.Helper()
		slot, _, ok := s.take(layout(n))
		if !ok {
			t.Fatalf("no slot for layout %d", n)
		}
		return slot
	}
	first := take(1)
	for range 200 {
		if slot, fresh, ok := s.take(layout(1)); slot != first || fresh || !ok {
			t.Fatalf("the same layout again: slot %d, fresh %v, ok %v; want slot %d", slot, fresh, ok, first)
		}
	}
	second := take(2)
	if first == second {
		t.Errorf("two layouts share slot %d", first)
	}
	if _, _, ok := s.take(layout(3)); ok {
		t.Error("a third layout found a slot of two")
	}
	for range 200 {
		s.give(layout(1))
	}
	if _, _, ok := s.take(layout(3)); ok {
		t.Error("a slot was given away that a library still uses")
	}
	s.give(layout(1))
	if slot, fresh, ok := s.take(layout(3)); slot != first || !fresh || !ok {
		t.Errorf("after the last library of layout 1: slot %d, fresh %v, ok %v; want slot %d, to be written", slot, fresh, ok, first)
	}
	for i := range int64(500) { // one after the other, far more than there are slots
		s.give(layout(3 + i))
		take(4 + i)
	}
}
