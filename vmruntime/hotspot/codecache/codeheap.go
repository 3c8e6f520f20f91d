// Package codecache finds code in HotSpot's code cache: which heap, segment and blob an address
// belongs to, and what kind of code the blob has.
//
//	heaps, shift, err := codecache.ReadHeaps(reader, &schema)
//	cache := codecache.Cache{Memory: &reader, Schema: &schema, Heaps: heaps, Shift: shift}
//	addr, err := cache.Find(pc)                            // address of the CodeBlob that pc is in
//	blob, err := blobSchema.Decode(addr, header)
//
// Files:
//
//	codeheap  the heaps, and the fields that lead to them
//	segmap    from an address to its blob
//	walk      all blobs, in batches
//	blob      the header of a blob, and of an nmethod
//	blobkind  kinds of blobs by their names
//	stubs     code that the VM generates for itself: parts of the interpreter, stub routines
//
// The VM may change its code cache during every read. ErrStale says that the code at an address is
// gone; callers compare what they read before and after.
package codecache

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Heap is one part of the code cache (src/hotspot/share/memory/heap.hpp): memory that is cut into
// segments of equal size, and a segment map with one byte for each.
type Heap struct {
	Low    uint64 // address of the first segment
	High   uint64 // end of what is reserved: no code of this heap is there or behind it
	Segmap uint64 // address of the first segment's byte

	used uint64 // end of what was in use when this was read
}

// Bounds on the code cache. HotSpot has at most three heaps, and refuses a cache of more than 2
// GiB.
const (
	maxHeaps    = 8
	maxHeapSize = 2 << 30
	minShift    = 4
	maxShift    = 16
)

// Schema leads from static variables to the code heaps and their segment maps.
type Schema struct {
	Heaps, heap         uint64          // statics: GrowableArray<CodeHeap*>*, or in JDK 8 a CodeHeap*
	arrayLen, arrayData vmstructs.Field // fields of GrowableArray
	memory, segmap      vmstructs.Field // fields of CodeHeap: two VirtualSpaces
	segmentShift        vmstructs.Field // field of CodeHeap
	heapSize            uint64
	// low, high and boundary are fields of VirtualSpace: high is the end of what is in use,
	// boundary of what is reserved.
	low, high, boundary vmstructs.Field
	blockLength         vmstructs.Field // field of HeapBlock: segments
	BlockUsed           vmstructs.Field // field of HeapBlock: whether it holds something
	BlockSize           uint64
}

// NewSchema looks up the fields that lead to the code heaps. What is missing is in r.Err.
func NewSchema(r *vmstructs.Resolver) Schema {
	c := Schema{
		Heaps:        r.OptionalStatic("CodeCache._heaps"),
		heap:         r.OptionalStatic("CodeCache._heap"),
		arrayLen:     r.Optional("GrowableArrayBase._len", "GenericGrowableArray._len"),
		arrayData:    r.Optional("GrowableArray<int>._data"),
		memory:       r.Field("CodeHeap._memory"),
		segmap:       r.Field("CodeHeap._segmap"),
		segmentShift: r.Field("CodeHeap._log2_segment_size"),
		heapSize:     r.Size("CodeHeap"),
		low:          r.Field("VirtualSpace._low"),
		high:         r.Field("VirtualSpace._high"),
		boundary:     r.Field("VirtualSpace._high_boundary"),
		blockLength:  r.Field("HeapBlock::Header._length"),
		BlockUsed:    r.Field("HeapBlock::Header._used"),
		BlockSize:    r.Size("HeapBlock"),
	}
	if c.heap == 0 && (c.Heaps == 0 || !c.arrayLen.Known || !c.arrayData.Known) {
		r.Missing = append(r.Missing, "CodeCache._heaps or CodeCache._heap")
	}
	return c
}

// ReadHeaps reads the code heaps and the log2 of the segment size, which all of them share.
func ReadHeaps(t vmstructs.Reader, c *Schema) (heaps []Heap, shift uint8, err error) {
	pointers, err := heapPointers(t, c)
	if err != nil {
		return nil, 0, err
	}
	for _, addr := range pointers {
		object, err := t.Bytes(addr, c.heapSize)
		if err != nil {
			return nil, 0, err
		}
		field := func(space, f vmstructs.Field) uint64 { f.Offset += space.Offset; return f.Read(object) }
		h := Heap{
			Low:    field(c.memory, c.low),
			High:   field(c.memory, c.boundary),
			Segmap: field(c.segmap, c.low),
			used:   field(c.memory, c.high),
		}
		s := c.segmentShift.Read(object)
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
func heapPointers(t vmstructs.Reader, c *Schema) ([]uint64, error) {
	if c.Heaps == 0 {
		heap, err := t.Word(c.heap)
		if err == nil && heap == 0 {
			err = vmruntime.ErrStarting
		}
		return []uint64{heap}, err
	}
	array, err := t.Word(c.Heaps)
	if err != nil {
		return nil, err
	}
	if array == 0 {
		return nil, vmruntime.ErrStarting
	}
	var b vmstructs.Batch
	b.Add(c.arrayLen.At(array), 4)
	b.Add(c.arrayData.At(array), 8)
	if err := b.Read(t.Mem); err != nil {
		return nil, err
	}
	n, _ := b.Word(0)
	data, ok := b.Word(1)
	if !ok || n > maxHeaps {
		return nil, fmt.Errorf("%d code heaps: %w", n, vmruntime.ErrMalformed)
	}
	if n == 0 {
		return nil, vmruntime.ErrStarting
	}
	list, err := t.Bytes(data, 8*n)
	if err != nil {
		return nil, err
	}
	pointers := make([]uint64, n)
	for i := range pointers {
		pointers[i] = vmstructs.Number(list[8*i : 8*i+8])
	}
	return pointers, nil
}
