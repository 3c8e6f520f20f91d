//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// arrayLayout is Klass::_layout_helper of an array: a tag, bytes before the elements, their kind,
// log2 of their size.
func arrayLayout(tag, header, kind, log2 uint32) int32 {
	return int32(tag<<30 | header<<16 | kind<<8 | log2)
}

const ofObjects, ofValues = 2, 3 // tags

func (q *prober) allocatedClasses(t *testing.T) map[uint64]ClassCount {
	t.Helper()
	counts := map[uint64]ClassCount{}
	var key CountedClass
	var n ClassCount
	for all := q.p.Allocated.Iterate(); all.Next(&key, &n); {
		if key.Serial != proberSerial {
			t.Errorf("counted for VM %d", key.Serial)
		}
		counts[key.Klass] = n
	}
	return counts
}

// Objects and bytes of every class, with the object as the first argument or as the second one.
func TestKernelExactCounts(t *testing.T) {
	q := newProber(t, Options{})
	h := newFakeHeap(t)
	h.Flags, h.NarrowKlassBase, h.NarrowKlassShift, h.ArrayLength = HeapNarrowKlass, h.mem.base-8, 3, 12
	q.layout(t, h.HotspotHeap)
	first, second := q.attach(t, q.p.ObjectAllocated, 0), q.attach(t, q.p.ObjectAllocatedBy, 0)
	bytes, longs := h.klass("[B", arrayLayout(ofValues, 16, 8, 0)), h.klass("[J", arrayLayout(ofValues, 16, 11, 3))
	objects := h.klass("[Ljava/lang/Object;", arrayLayout(ofObjects, 16, 12, 2))
	small, slow := h.klass("Small", 16), h.klass("Slow", 40|1) // the lowest bit: instances are allocated by a slow path
	want := map[uint64]ClassCount{}
	for _, c := range []struct {
		klass    uint64
		elements uint32
		size     uint64
	}{
		{small, 0, 16}, {small, 0, 16}, {slow, 0, 40},
		{bytes, 0, 16}, {bytes, 1, 24}, {bytes, 8, 24}, {bytes, 9, 32}, {bytes, 1 << 31, 16 + 1<<31},
		{longs, 3, 40}, {longs, 1<<31 - 1, 16 + 8*(1<<31-1)}, {objects, 3, 32}, {objects, 4, 32},
	} {
		object := h.object(c.klass, c.elements)
		first.hit(arguments{object})
		second.hit(arguments{stray, object})
		n := want[c.klass]
		n.Objects += 2
		n.Bytes += 2 * c.size
		want[c.klass] = n
	}
	got := q.allocatedClasses(t)
	for klass, n := range want {
		if got[klass] != n {
			t.Errorf("class %#x: %+v, want %+v", klass, got[klass], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d classes, want %d", len(got), len(want))
	}
	q.none(t, "what is counted")
}

// Threads that count at once on all CPUs count each object.
func TestProbeExactCountsAtOnce(t *testing.T) {
	q := newProber(t, Options{})
	h := newFakeHeap(t)
	q.layout(t, h.HotspotHeap)
	probe := q.attach(t, q.p.ObjectAllocated, 0)
	klass := h.klass("A", 24)
	object := h.object(klass, 0)
	const threads, each = 4, 25_000
	done := make(chan struct{})
	for range threads {
		go func() {
			defer func() { done <- struct{}{} }()
			for range each {
				probe.hit(arguments{object})
			}
		}()
	}
	for range threads {
		<-done
	}
	if got, want := q.allocatedClasses(t)[klass], (ClassCount{Objects: threads * each,
		Bytes: threads * each * 24}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// A class that finds no room is counted as one that is missing; the others go on.
func TestProbeExactCountsFull(t *testing.T) {
	q := newProber(t, Options{})
	h := newFakeHeap(t)
	q.layout(t, h.HotspotHeap)
	probe := q.attach(t, q.p.ObjectAllocated, 0)
	known, other := h.object(h.klass("A", 24), 0), h.object(h.klass("B", 24), 0)
	probe.hit(arguments{known})
	full := int(q.p.Allocated.MaxEntries()) - 1
	keys := make([]CountedClass, full)
	for i := range keys {
		keys[i] = CountedClass{Klass: uint64(i + 1), Serial: proberSerial}
	}
	if _, err := q.p.Allocated.BatchUpdate(keys, make([]ClassCount, full), nil); err != nil {
		t.Fatal(err)
	}
	probe.hit(arguments{other})
	probe.hit(arguments{other})
	probe.hit(arguments{known})
	if n := q.counts(t)[ObservationsDroppedTableFull]; n != 2 {
		t.Errorf("%d objects found no room, want 2", n)
	}
	var counts []uint64
	for _, n := range q.allocatedClasses(t) {
		if n.Objects > 0 {
			counts = append(counts, n.Objects)
		}
	}
	if !slices.Equal(counts, []uint64{2}) {
		t.Errorf("counted %v, want 2 of the class that was known", counts)
	}
}

// Without a layout there is nothing to count.
func TestProbeExactCountsUnknown(t *testing.T) {
	q := newProber(t, Options{})
	probe := q.attach(t, q.p.ObjectAllocated, 0)
	probe.hit(arguments{stray})
	if got := q.allocatedClasses(t); len(got) != 0 {
		t.Errorf("counted %v", got)
	}
}
