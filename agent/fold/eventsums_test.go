package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// An object that was drawn from bytes stands for as many of its size as make them.
func TestAllocation(t *testing.T) {
	for _, c := range []struct {
		size, bytes      uint64
		every            uint32
		objects, ofBytes float64
	}{
		{16, 1 << 18, 1, 1 << 14, 1 << 18},
		{16, 1 << 18, 3, 3 << 14, 3 << 18},
		{24, 100, 1, 100.0 / 24, 100},
		{1 << 20, 1 << 20, 1, 1, 1 << 20}, // outside, for itself
		{16, 0, 1, 0, 0},
		{0, 1 << 18, 1, 0, 0}, // none is of no size: hostile
	} {
		got := AllocationSums(c.size, c.bytes, c.every)
		want := EventSums{Events: 1, Values: [profile.MaxEventValues]float64{c.objects, c.ofBytes}}
		if got != want {
			t.Errorf("%d bytes, for %d, one in %d: %+v, want %+v", c.size, c.bytes, c.every, got, want)
		}
	}
}
