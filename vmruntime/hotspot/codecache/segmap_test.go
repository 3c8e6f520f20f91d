package codecache

import (
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// testCache is a code cache of one heap of 128-byte segments at 0x100000 with the given segment
// map. Blocks have a header of 16 bytes: their length in segments, and whether they are used.
func testCache(segmap []byte) (*Cache, *vmtest.Memory) {
	const low, maps = 0x100000, 0x900000
	size := uint64(len(segmap)) << 7
	mem := &vmtest.Memory{Pieces: []vmtest.Piece{{Addr: low, Data: make([]byte, size)}, {Addr: maps, Data: segmap}}}
	word := func(offset uint32, width uint8) vmstructs.Field {
		return vmstructs.Field{Offset: offset, Width: width, Known: true}
	}
	return &Cache{
		Memory: &vmstructs.Reader{Mem: mem},
		Schema: &Schema{blockLength: word(0, 8), BlockUsed: word(8, 1), BlockSize: 16},
		Heaps:  []Heap{{Low: low, High: low + size, Segmap: maps, used: low + size}},
		Shift:  7,
	}, mem
}

func TestFind(t *testing.T) {
	// A block of one segment, one of 300, a free one of two, and one that says that it is free.
	segmap := []byte{0}
	segmap = append(segmap, 0)
	for i := 1; i < 300; i++ {
		segmap = append(segmap, byte(min(i, 254)))
	}
	segmap = append(segmap, 0xff, 0xff, 0)
	cache, mem := testCache(segmap)
	block := func(segment, length uint64, used byte) {
		b := mem.At(0x100000+segment<<7, 16)
		b[0], b[1], b[8] = byte(length), byte(length>>8), used
	}
	block(0, 1, 1)
	block(1, 300, 1)
	block(303, 1, 0)
	for _, test := range []struct {
		addr uint64
		want uint64
		err  error
	}{
		{0x100000, 0x100010, nil},
		{0x10007f, 0x100010, nil},
		{0x100080, 0x100090, nil},
		{0x100080 + 299<<7, 0x100090, nil}, // two hops
		{0x100000 + 301<<7, 0, vmruntime.ErrStale},
		{0x100000 + 303<<7, 0, vmruntime.ErrStale},
		{0x100000 + 304<<7, 0, vmruntime.ErrUnknown}, // behind the heap
		{0xfffff, 0, vmruntime.ErrUnknown},
	} {
		if got, err := cache.Find(test.addr); got != test.want || !errors.Is(err, test.err) {
			t.Errorf("find %#x: %#x, %v; want %#x, %v", test.addr, got, err, test.want, test.err)
		}
	}
	block(1, 10, 1) // a block that does not reach as far as its segments say
	if _, err := cache.Find(0x100000 + 100<<7); !errors.Is(err, vmruntime.ErrStale) {
		t.Errorf("behind a block's end: %v", err)
	}
}

func TestFindRefuses(t *testing.T) {
	before := []byte{1, 1, 1} // no start: the first one points out of the map
	cache, _ := testCache(before)
	if _, err := cache.Find(0x100000 + 2<<7); !errors.Is(err, vmruntime.ErrMalformed) {
		t.Errorf("hop out of the map: %v", err)
	}
	endless := make([]byte, 70<<10)
	for i := range endless {
		endless[i] = 1
	}
	endless[0] = 0
	cache, _ = testCache(endless)
	if _, err := cache.Find(0x100000 + uint64(len(endless)-1)<<7); !errors.Is(err, vmruntime.ErrMalformed) {
		t.Errorf("hops without end: %v", err)
	}
}
