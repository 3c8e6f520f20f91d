package events

import "slices"

// A numbering gives out the numbers below a bound, each to one owner at a time.
type numbering struct {
	next, bound uint32
	free        []uint32 // below next
}

// take returns a free number, the one that was returned longest ago; false if there is none.
func (n *numbering) take() (uint32, bool) {
	if len(n.free) > 0 {
		number := n.free[0]
		n.free = n.free[1:]
		return number, true
	}
	if n.next >= n.bound {
		return 0, false
	}
	n.next++
	return n.next - 1, true
}

// give returns numbers whose owner is gone.
func (n *numbering) give(numbers []uint32) { n.free = append(slices.Clip(n.free), numbers...) }
