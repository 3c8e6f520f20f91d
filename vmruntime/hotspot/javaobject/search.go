package javaobject

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
)

// A located is a place that looks like an object.
type located struct {
	javaheap.Candidate
	head klassHead
	size uint64 // bytes
}

func (o *located) end() uint64            { return o.Start + o.size }
func (o *located) holds(addr uint64) bool { return addr >= o.Start && addr < o.end() }

// An objectSearch decides which object holds an address, from places that look like objects. Some
// of them only do so: references of 32 bits, numbers, and the pointers to its class in a
// java.lang.Class can be what narrow or wide pointers to a class are (in a heap whose references
// are counted from a base, as classes are: there, one answer in some thousands stays wrong); and
// objects that are dead can still be seen in memory that is free.
//
// Objects are side by side, without gaps, where the heap is in use. So a place counts if another
// one ends where it begins: what is inside of an object may look like one, but nothing ends right
// before it. If that place has another one in it that holds the address, one of the two is none.
// Then it is the one to which the longest row of objects leads, one behind the other: what fills up
// gaps has dead objects in it, too, but few. Threads are asked for the free parts of their buffers,
// which may be full of them. Only where no row leads (at the start of a buffer or a region, or
// behind a large array) it is the nearest place that holds the address, preferably one that another
// one follows.
type objectSearch struct {
	addr uint64
	// isFree reports whether a place is in the free part of a thread's buffer. It reads from the
	// guest.
	isFree func(addr uint64) bool
	// isObject reports whether a place looks like an object. It reads from the guest.
	isObject func(addr uint64) (bool, error)
	// mirrorPointers are where a java.lang.Class has pointers to classes: from its start to that of
	// an object whose header that pointer would be in.
	mirrorPointers []uint64

	seen []located // by descending start
	over bool      // best is the answer
	best *located
}

// add takes places up, by descending start, all of them before those that were added earlier.
func (s *objectSearch) add(places []located) {
	for _, place := range places {
		if next := s.at(place.end()); next != nil && !s.inMirror(next) && s.decide(next) {
			return
		}
		s.seen = append(s.seen, place)
	}
}

// at returns the place that begins at start.
func (s *objectSearch) at(start uint64) *located {
	for i := range s.seen {
		if s.seen[i].Start == start {
			return &s.seen[i]
		}
	}
	return nil
}

// decide ends the search if next, which begins where another place ends, is an object beyond doubt.
// Then nothing that begins before it holds the address.
func (s *objectSearch) decide(next *located) (over bool) {
	nearest := s.nearest()
	if nearest != nil && nearest.Start > next.Start && nearest.Start < next.end() {
		return false
	}
	s.over = true
	switch {
	case next.holds(s.addr):
		s.best = next
	case nearest != nil && nearest.Start >= next.end():
		s.best = nearest
	}
	return true
}

// nearest is the place that holds the address and begins nearest to it.
func (s *objectSearch) nearest() *located {
	for i := range s.seen {
		if o := &s.seen[i]; o.holds(s.addr) && !s.inMirror(o) {
			return o
		}
	}
	return nil
}

// inMirror reports whether what looks like the class in the header of a place is a pointer in a
// java.lang.Class.
func (s *objectSearch) inMirror(o *located) bool {
	for _, offset := range s.mirrorPointers {
		if mirror := s.at(o.Start - offset); mirror != nil && mirror.head.symbol == mirrorClass {
			return true
		}
	}
	return false
}

// result is the object, once all places were added or the search is over; nil if there is none.
func (s *objectSearch) result() (*located, error) {
	if s.over {
		return s.best, nil
	}
	var best *located
	longest := 0
	rows := make(map[uint64]int) // by their end
	for i := len(s.seen) - 1; i >= 0; i-- {
		o := &s.seen[i]
		if s.isFree(o.Start) || s.inMirror(o) {
			continue
		}
		row := rows[o.Start] + 1
		rows[o.end()] = max(rows[o.end()], row)
		if o.holds(s.addr) && row >= longest { // Among equals, the nearest is best.
			best, longest = o, row
		}
	}
	if longest > 1 {
		return best, nil
	}
	return s.followed(best)
}

// followed is the nearest place that holds the address and has an object behind it, or else that
// one.
func (s *objectSearch) followed(nearest *located) (*located, error) {
	for i := range s.seen {
		o := &s.seen[i]
		if !o.holds(s.addr) || s.inMirror(o) || s.isFree(o.Start) {
			continue
		}
		if ok, err := s.isObject(o.end()); ok || err != nil {
			return o, err
		}
	}
	return nearest, nil
}
