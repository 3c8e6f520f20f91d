package probes

import (
	"testing"
)

// Numbers are reused, each by one owner at a time, in the order in which they were returned.
func TestNumbering(t *testing.T) {
	n := numbering{bound: 3}
	take := func() int {
		if number, ok := n.take(); ok {
			return int(number)
		}
		return -1
	}
	for i, want := range []int{0, 1, 2, -1} {
		if got := take(); got != want {
			t.Fatalf("number %d is %d, want %d", i, got, want)
		}
	}
	n.give([]uint32{2})
	n.give([]uint32{0, 1})
	for i, want := range []int{2, 0, 1, -1} {
		if got := take(); got != want {
			t.Errorf("number %d that is used again is %d, want %d", i, got, want)
		}
	}
	for i := range 1000 {
		n.give([]uint32{1, 2})
		if first, second := take(), take(); first != 1 || second != 2 {
			t.Fatalf("round %d: %d and %d", i, first, second)
		}
	}
}
