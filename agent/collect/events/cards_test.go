package events

import (
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A fakeObject is one in a fakeHeap.
type fakeObject struct {
	class      string
	start, end uint64
}

// A fakeHeap finds only objects that begin within 4 KiB of the address, or at a base, as HotSpot's
// does.
type fakeHeap []fakeObject

var errNoFakeObject = errors.New("no object")

func (h fakeHeap) HeapBounds() (low, high uint64, moving, ok bool) {
	return 0x1000, 0x100000, false, true
}

func (h fakeHeap) PlaceAt(addr uint64, bases ...uint64) (vmruntime.Place, error) {
	for _, o := range h {
		near := addr-o.start <= 4<<10
		for _, b := range bases {
			near = near || b == o.start
		}
		if addr >= o.start && addr < o.end && near {
			return vmruntime.Place{Class: o.class, Offset: addr - o.start, Index: -1}, nil
		}
	}
	return vmruntime.Place{}, errNoFakeObject
}

func TestStoredInto(t *testing.T) {
	heap := fakeHeap{
		{"Order", 0x2010, 0x2020}, {"Customer", 0x2020, 0x2030}, {"Item[]", 0x2030, 0x3000},
		{"Large[]", 0x8000, 0x20000},
	}
	for _, test := range []struct {
		name             string
		low              uint64
		addresses, bases []uint64
		want             string
		err              bool
	}{
		{"the object that begins at an address", 0x2000, []uint64{0x2020}, nil, "Customer", false},
		{"rather than one that an address is in", 0x2000, []uint64{0x2050, 0x2010}, nil, "Order", false},
		{"the array with an element at an address", 0x2000, []uint64{0x2058}, nil, "Item[]", false},
		{"the first address that is in an object", 0x2000, []uint64{0x2028, 0x2058}, nil, "Customer", false},
		{"no object, though another address has one", 0x2000, []uint64{0x2000, 0x2010}, nil, "Order", false},
		{"an object that has the whole card", 0x2200, nil, nil, "Item[]", false},
		{"several in the card, and no address", 0x2000, nil, nil, "", true},
		{"one begins in the card, and no address", 0x2e00, nil, nil, "Item[]", false},
		{"the end of one", 0x1f00, nil, nil, "", true},
		{"a large array, of which a base is known", 0x10000, []uint64{0x10040}, []uint64{0x8000}, "Large[]", false},
		{"a large array without its base", 0x10000, []uint64{0x10040}, nil, "", true},
		{"and without an address", 0x10000, nil, nil, "", true},
		{"too many addresses", 0x2000, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 0x2010}, nil, "", true},
	} {
		got, err := storedInto(heap, test.low, test.low+512, test.addresses, test.bases)
		if got != test.want || (err != nil) != test.err {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
	}
}
