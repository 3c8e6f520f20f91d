package javaheap

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Forwarding is how ZGC finds an object that it has moved, until it has updated all references to
// where the object was: by a hash table for each page whose objects it moves
// (src/hotspot/share/gc/z/zForwarding.hpp). Addresses in the heap are offsets there, from
// HeapLayout.Low on. The zero value says that this is not known.
//
// The pointer at Table + 8*(offset>>GranuleShift) leads to the forwarding of that page, null if
// there is none. Its Length entries of 64 bits are at Entries, a power of two. An object's entry is
// at the hash of its index, (offset-Start)>>AlignmentShift, or behind that, before an entry of 0.
// It has the index from bit 46 on, the new offset from bit 1 on, and bit 0 set.
type Forwarding struct {
	Tables       [2]uint64 // one for each generation; 0 for none
	GranuleShift uint8

	Start, AlignmentShift, Length uint32 // fields of a forwarding: words
	Entries                       uint32 // field of a forwarding, in bytes
}

// Known reports whether anything is.
func (f *Forwarding) Known() bool { return f.Tables[0] != 0 }

// A forwardingSchema leads to a Forwarding. All of it is optional.
type forwardingSchema struct {
	heap         vmstructs.Field // field of CollectedHeap
	heapSize     uint64
	pages        vmstructs.Field // field of the heap, as the next one: the table of pages, like that of forwardings
	pagesMap     vmstructs.Field
	granules     vmstructs.Field // field of both tables
	granuleShift int64

	virtual, virtualStart, alignmentShift, entries, length vmstructs.Field
	size                                                   uint64
}

// newForwardingSchema looks up what begins with that letter: Z, or X for the ZGC without
// generations that JDK 21 to 23 have as well.
func newForwardingSchema(r *vmstructs.Resolver, letter string) forwardingSchema {
	return forwardingSchema{
		heap:           r.Optional(letter + "CollectedHeap._heap"),
		heapSize:       r.Sizes[letter+"Heap"],
		pages:          r.Optional(letter + "Heap._page_table"),
		pagesMap:       r.Optional(letter + "PageTable._map"),
		granules:       r.Optional(letter + "GranuleMapForForwarding._map"),
		granuleShift:   r.Constant(letter + "GranuleSizeShift"),
		virtual:        r.Optional(letter + "Forwarding._virtual"),
		virtualStart:   r.Optional(letter + "VirtualMemory._start"),
		alignmentShift: r.Optional(letter + "Forwarding._object_alignment_shift"),
		entries:        r.Optional(letter + "Forwarding._entries"),
		length:         r.Optional(letter + "AttachedArrayForForwarding._length"),
		size:           r.Sizes[letter+"Forwarding"],
	}
}

func (s *forwardingSchema) known() bool {
	for _, f := range []vmstructs.Field{s.heap, s.pages, s.pagesMap, s.granules, s.virtual, s.virtualStart,
		s.alignmentShift, s.entries, s.length} {
		if !f.Known {
			return false
		}
	}
	return s.granules.Offset >= vmstructs.WordSize && s.granuleShift > 0 && s.granuleShift < 64 && s.size > 0 &&
		s.size <= vmstructs.MaxSize && s.size%vmstructs.WordSize == 0
}

// maxHeapObject is how many bytes of the VM's ZHeap are searched. JDK 25 has 15 KB.
const maxHeapObject = 64 << 10

// Forwarding reads where the tables are, for a heap that begins at low. The VM does not export
// where its generations have theirs.
func (r Reader) Forwarding(low uint64) (f Forwarding, err error) {
	s := &r.Colours.forwarding
	if !r.GenerationalZ() && r.Colours.generational {
		s = &r.Colours.oldForwarding
	}
	if !s.known() || s.heapSize == 0 {
		return f, nil
	}
	heap, err := r.Word(r.Heap.Heap)
	if err != nil {
		return f, err
	}
	heap = s.heap.At(heap)
	words, err := r.Bytes(heap, min(s.heapSize, maxHeapObject))
	if err != nil {
		return f, err
	}
	f.Tables = s.tables(words, low)
	if !f.Known() {
		return Forwarding{}, nil
	}
	f.GranuleShift = uint8(s.granuleShift)
	f.Start = s.virtual.Offset + s.virtualStart.Offset
	f.AlignmentShift = s.alignmentShift.Offset
	f.Length = s.entries.Offset + s.length.Offset
	f.Entries = uint32(s.size)
	return f, nil
}

// tables looks for the tables in the bytes of ZHeap. There a table is its length and a pointer
// (src/hotspot/share/gc/z/zGranuleMap.hpp). So is the table of pages, which is exported. The
// generations' tables are behind that one and have the same length as each other. Up to JDK 24 it
// is also the length of the table of pages. Since JDK 25 that one is longer: 4096 or a larger power
// of two.
func (s *forwardingSchema) tables(heap []byte, low uint64) (tables [2]uint64) {
	pair := func(at uint64) (length, table uint64) {
		if at+2*vmstructs.WordSize > uint64(len(heap)) {
			return 0, 0
		}
		b := heap[at:]
		return vmstructs.Number(b[:vmstructs.WordSize]), vmstructs.Number(b[vmstructs.WordSize : 2*vmstructs.WordSize])
	}
	pages := uint64(s.pages.Offset+s.pagesMap.Offset+s.granules.Offset) - vmstructs.WordSize
	most, _ := pair(pages)
	found := make(map[uint64][]uint64) // by length
	for at := pages + 2*vmstructs.WordSize; at < uint64(len(heap)); at += vmstructs.WordSize {
		length, table := pair(at)
		// What is below low are offsets in the heap.
		if length > 0 && length <= most && table >= low && table%vmstructs.PageSize == 0 {
			found[length] = append(found[length], table)
		}
	}
	length := most
	if len(found[most]) == 0 {
		length = 0
		for l, t := range found {
			if len(t) > 1 { // small numbers next to pointers are as well, but those tables are longer
				length = max(length, l)
			}
		}
	}
	if len(found[length]) <= len(tables) { // else one of them is something else
		copy(tables[:], found[length])
	}
	return tables
}
