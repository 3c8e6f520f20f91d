package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A CodeHeap is one part of the code cache (src/hotspot/share/memory/heap.hpp): memory that is cut into segments of
// equal size, and a segment map with one byte for each.
type CodeHeap struct {
	Low    uint64 // address of the first segment
	High   uint64 // end of what is reserved: no code of this heap is there or behind it
	Segmap uint64 // address of the first segment's byte

	used uint64 // end of what was in use when this was read
}

// Bounds on the code cache. HotSpot has at most three heaps, and refuses a cache of more than 2 GiB.
const (
	maxHeaps    = 8
	maxHeapSize = 2 << 30
	minShift    = 4
	maxShift    = 16
)

// cacheSchema leads from static variables to the code heaps and their segment maps.
type cacheSchema struct {
	heaps, heap         uint64 // statics: GrowableArray<CodeHeap*>*, or in JDK 8 a CodeHeap*
	arrayLen, arrayData field  // of GrowableArray
	memory, segmap      field  // of CodeHeap: two VirtualSpaces
	segmentShift        field  // of CodeHeap
	heapSize            uint64
	low, high, boundary field // of VirtualSpace: high is the end of what is in use, boundary of what is reserved
	blockLength         field // of HeapBlock: segments
	blockUsed           field // of HeapBlock: whether it holds something
	blockSize           uint64
}

func newCacheSchema(r *resolver) cacheSchema {
	c := cacheSchema{
		heaps:        r.optionalStatic("CodeCache._heaps"),
		heap:         r.optionalStatic("CodeCache._heap"),
		arrayLen:     r.optional("GrowableArrayBase._len", "GenericGrowableArray._len"),
		arrayData:    r.optional("GrowableArray<int>._data"),
		memory:       r.field("CodeHeap._memory"),
		segmap:       r.field("CodeHeap._segmap"),
		segmentShift: r.field("CodeHeap._log2_segment_size"),
		heapSize:     r.size("CodeHeap"),
		low:          r.field("VirtualSpace._low"),
		high:         r.field("VirtualSpace._high"),
		boundary:     r.field("VirtualSpace._high_boundary"),
		blockLength:  r.field("HeapBlock::Header._length"),
		blockUsed:    r.field("HeapBlock::Header._used"),
		blockSize:    r.size("HeapBlock"),
	}
	if c.heap == 0 && (c.heaps == 0 || !c.arrayLen.known || !c.arrayData.known) {
		r.missing = append(r.missing, "CodeCache._heaps or CodeCache._heap")
	}
	return c
}

// readHeaps reads the code heaps and the log2 of the segment size, which all of them share.
func readHeaps(t target, c *cacheSchema) (heaps []CodeHeap, shift uint8, err error) {
	pointers, err := heapPointers(t, c)
	if err != nil {
		return nil, 0, err
	}
	for _, addr := range pointers {
		object, err := t.bytes(addr, c.heapSize)
		if err != nil {
			return nil, 0, err
		}
		field := func(space, f field) uint64 { f.offset += space.offset; return f.of(object) }
		h := CodeHeap{
			Low:    field(c.memory, c.low),
			High:   field(c.memory, c.boundary),
			Segmap: field(c.segmap, c.low),
			used:   field(c.memory, c.high),
		}
		s := c.segmentShift.of(object)
		if h.Low == 0 || h.Segmap == 0 { // CodeHeap::reserve sets both before there is any code
			return nil, 0, fmt.Errorf("code heap at %#x: %w", addr, vmruntime.ErrStarting)
		}
		if s < minShift || s > maxShift || h.High < h.Low || h.High-h.Low > maxHeapSize ||
			h.used < h.Low || h.used > h.High || h.Low%(1<<s) != 0 || len(heaps) > 0 && uint8(s) != shift {
			return nil, 0, fmt.Errorf("code heap at %#x: %w", addr, vmruntime.ErrMalformed)
		}
		shift = uint8(s)
		heaps = append(heaps, h)
	}
	return heaps, shift, nil
}

// heapPointers returns the addresses of the CodeHeap objects.
func heapPointers(t target, c *cacheSchema) ([]uint64, error) {
	if c.heaps == 0 {
		heap, err := t.word(c.heap)
		if err == nil && heap == 0 {
			err = vmruntime.ErrStarting
		}
		return []uint64{heap}, err
	}
	array, err := t.word(c.heaps)
	if err != nil {
		return nil, err
	}
	if array == 0 {
		return nil, vmruntime.ErrStarting
	}
	var b batch
	b.add(c.arrayLen.at(array), 4)
	b.add(c.arrayData.at(array), 8)
	if err := b.read(t.mem); err != nil {
		return nil, err
	}
	n, _ := b.word(0)
	data, ok := b.word(1)
	if !ok || n > maxHeaps {
		return nil, fmt.Errorf("%d code heaps: %w", n, vmruntime.ErrMalformed)
	}
	if n == 0 {
		return nil, vmruntime.ErrStarting
	}
	list, err := t.bytes(data, 8*n)
	if err != nil {
		return nil, err
	}
	pointers := make([]uint64, n)
	for i := range pointers {
		pointers[i] = number(list[8*i : 8*i+8])
	}
	return pointers, nil
}
