//go:build linux && amd64

package bpf

import (
	"strings"
	"testing"
)

// allocated is an allocation outside of a buffer, of a VM without buffers: it is always told.
func allocated(klass, object uint64) arguments { return arguments{klass, object, 16} }

func TestKernelClasses(t *testing.T) {
	q := newProber(t, Options{})
	allocation := q.attach(t, q.p.AllocationOutside, 1)
	for _, test := range []struct {
		name  string
		setup func(*fakeHeap)
	}{
		{"wide", func(*fakeHeap) {}},
		{"narrow, with a base", func(h *fakeHeap) { h.Flags, h.NarrowKlassBase = HeapNarrowKlass, h.mem.base }},
		{"narrow, with a base and a shift", func(h *fakeHeap) {
			h.Flags, h.NarrowKlassBase, h.NarrowKlassShift = HeapNarrowKlass, h.mem.base-8<<30, 3
		}},
		{"narrow, with a number above 2 Gi", func(h *fakeHeap) {
			h.Flags, h.NarrowKlassBase = HeapNarrowKlass,
				h.mem.base-3<<30
		}},
		{"compact", func(h *fakeHeap) {
			h.Flags, h.NarrowKlassBase, h.NarrowKlassShift, h.KlassBit,
				h.ObjectKlass = HeapCompactHeader|HeapNarrowKlass, h.mem.base&^1023, 10, 42, 0
		}},
		{"compact, with the largest number", func(h *fakeHeap) {
			h.Flags, h.NarrowKlassShift, h.KlassBit, h.ObjectKlass = HeapCompactHeader|HeapNarrowKlass, 10, 42, 0
			h.NarrowKlassBase = h.top - (1<<22-1)<<10
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newFakeHeap(t)
			test.setup(h)
			q.layout(t, h.HotspotHeap)
			klass := h.klass("java/lang/String", 24)
			object := h.object(klass, 0)
			allocation.hit(allocated(0, object)) // the VM does not say the class: it is read from the object
			if got := q.one(t); got.text != "java/lang/String" || got.seen.Object != object {
				t.Errorf("%#x is a %q, want %#x", got.seen.Object, got.text, object)
			}
			other := h.klass("Other", 24)
			allocation.hit(allocated(other, object))
			if got := q.one(t); got.text != "Other" {
				t.Errorf("the class that was told is %q", got.text)
			}
		})
	}
}

func TestProbeClassNames(t *testing.T) {
	q := newProber(t, Options{})
	h := newFakeHeap(t)
	q.layout(t, h.HotspotHeap)
	allocation := q.attach(t, q.p.AllocationOutside, 1)
	long := strings.Repeat("x", 1<<16-1)
	brink := edge(t, 16) // a symbol whose name goes on behind the memory
	brink[h.SymbolLength] = 11
	torn := h.klass("", 0)
	h.mem.put64(torn+uint64(h.KlassName), addressOf(brink))
	whole := edge(t, 16)
	whole[h.SymbolLength] = 10
	copy(whole[h.SymbolBody:], "0123456789")
	last := h.klass("", 0)
	h.mem.put64(last+uint64(h.KlassName), addressOf(whole))
	nameless, astray := h.klass("", 0), h.klass("", 0)
	h.mem.put64(nameless+uint64(h.KlassName), 0)
	h.mem.put64(astray+uint64(h.KlassName), stray)
	for _, test := range []struct {
		name  string
		klass uint64
		want  string
		cut   bool
	}{
		{"one byte", h.klass("A", 0), "A", false},
		{"no byte", h.klass("", 0), "", false},
		{"just fits", h.klass(long[:480], 0), long[:480], false},
		{"one byte too long", h.klass(long[:481], 0), long[:480], true},
		{"the longest", h.klass(long, 0), long[:480], true},
		{"no symbol", nameless, "", false},
		{"a symbol that cannot be read", astray, "", false},
		{"a class that cannot be read", stray, "", false},
		{"a name that ends with the memory", last, "0123456789", false},
		{"a name that goes on behind the memory", torn, "", false},
	} {
		allocation.hit(allocated(test.klass, h.mem.base))
		got := q.one(t)
		if got.text != test.want || (got.seen.Flags&SeenCut != 0) != test.cut {
			t.Errorf("%s: %d bytes %.20q, flags %#x; want %d bytes, cut %v", test.name, len(got.text), got.text,
				got.seen.Flags, len(test.want), test.cut)
		}
	}
	for name, object := range map[string]uint64{"no object": 0, "an object that cannot be read": stray} {
		allocation.hit(allocated(0, object))
		if got := q.one(t); got.text != "" || got.seen.Object != object {
			t.Errorf("%s: %q at %#x", name, got.text, got.seen.Object)
		}
	}
}

// Objects are those of the VM that the layout was told of, or of none.
func TestProbeHeapOfOtherVM(t *testing.T) {
	q := newProber(t, Options{})
	h := newFakeHeap(t)
	klass := h.klass("A", 0)
	allocation := q.attach(t, q.p.AllocationOutside, 1)
	see := func(why, want string) {
		t.Helper()
		allocation.hit(allocated(klass, h.mem.base))
		if got := q.one(t); got.text != want || (got.seen.Object != 0) != (want != "") {
			t.Errorf("%s: a %q at %#x", why, got.text, got.seen.Object)
		}
	}
	see("no layout", "")
	q.layout(t, h.HotspotHeap)
	see("the VM's", "A")
	h.Serial++
	q.layout(t, h.HotspotHeap)
	see("another VM's", "")
	h.Serial--
	q.layout(t, h.HotspotHeap)
	q.vm.StartTicks++
	q.announce(t)
	allocation.hit(allocated(klass, h.mem.base))
	if got := q.one(t); got.text != "" || got.Attachment != 0 {
		t.Errorf("of a process that had this id before: a %q, attachment %d", got.text, got.Attachment)
	}
}

func TestKernelPlaces(t *testing.T) {
	q := newProber(t, Options{})
	allocation := q.attach(t, q.p.AllocationOutside, 1)
	const from = 0x7_0000_0000
	regions := func(h *fakeHeap) { h.regions(from, 2, 3, 4, 5, 16, 17, 1, 0) }
	bounds := func(h *fakeHeap) { h.Flags, h.YoungLow, h.YoungHigh = HeapYoungBounds, from, from+0x2000 }
	for _, test := range []struct {
		name   string
		setup  func(*fakeHeap)
		object uint64
		want   uint8
	}{
		{"eden", regions, from, PlaceYoung},
		{"the last of eden", regions, from + 0xff8, PlaceYoung},
		{"survivor", regions, from + 0x1000, PlaceSurvivor},
		{"humongous", regions, from + 0x2010, PlaceHumongous},
		{"humongous, goes on", regions, from + 0x3000, PlaceHumongous},
		{"old", regions, from + 0x4000, PlaceOld},
		{"old, in the archive", regions, from + 0x5000, PlaceOld},
		{"a type that says nothing", regions, from + 0x6000, PlaceUnknown},
		{"no region", regions, from + 0x7000, PlaceUnknown},
		{"no object", regions, 0, PlaceUnknown},
		{"a table that cannot be read", func(h *fakeHeap) { regions(h); h.RegionTable = stray }, 0x1000, PlaceUnknown},
		{"young", bounds, from, PlaceYoung},
		{"the last that is young", bounds, from + 0x1ff8, PlaceYoung},
		{"old, above", bounds, from + 0x2000, PlaceOld},
		{"old, below", bounds, from - 8, PlaceOld},
		{"no object, with bounds", bounds, 0, PlaceUnknown},
		{"a collector without generations", func(*fakeHeap) {}, from, PlaceUnknown},
	} {
		h := newFakeHeap(t)
		test.setup(h)
		q.layout(t, h.HotspotHeap)
		allocation.hit(allocated(h.klass("A", 0), test.object))
		if got := q.one(t); got.seen.Place != test.want || got.text != "A" {
			t.Errorf("%s: place %d of a %q, want %d", test.name, got.seen.Place, got.text, test.want)
		}
	}
}

// References of the VM's own: plain, through a handle, and with bits of the collector.
func TestKernelReferences(t *testing.T) {
	q := newProber(t, Options{})
	enter, entered := q.attach(t, q.p.MonitorEnter, 1), q.attach(t, q.p.MonitorEntered, 1)
	const coloured = HeapColoured
	for _, test := range []struct {
		name  string
		flags uint32
		shift uint32
		word  func(object uint64) uint64
		want  bool
	}{
		{"plain", 0, 0, func(o uint64) uint64 { return o }, true},
		{"a fixed shift", coloured, 13, func(o uint64) uint64 { return o<<13 | 1<<12 | 0xff0 }, true},
		{"a fixed shift of 16", coloured, 16, func(o uint64) uint64 { return o<<16 | 0xf000 }, true},
		{"bit 12", coloured, 0, func(o uint64) uint64 { return o<<13 | 1<<12 | 0xff0 }, true},
		{"bit 13", coloured, 0, func(o uint64) uint64 { return o<<14 | 1<<13 | 0xff0 }, true},
		{"bit 14", coloured, 0, func(o uint64) uint64 { return o<<15 | 1<<14 }, true},
		{"bit 15", coloured, 0, func(o uint64) uint64 { return o<<16 | 1<<15 }, true},
		{"none", 0, 0, func(uint64) uint64 { return 0 }, false},
		{"none, coloured", coloured, 13, func(uint64) uint64 { return 1 << 12 }, false},
	} {
		for _, handle := range []bool{false, true} {
			h := newFakeHeap(t)
			h.Flags, h.OopColourShift, h.MonitorObject = test.flags, test.shift, 16
			object := h.object(h.klass("Lock", 0), 0)
			word := test.word(object)
			monitor := h.allocate(64)
			h.mem.put64(monitor+16, word)
			if handle {
				h.Flags |= HeapMonitorHandle
				cell := h.allocate(8)
				h.mem.put64(cell, word)
				h.mem.put64(monitor+16, cell)
			}
			q.layout(t, h.HotspotHeap)
			seen := q.observations(t)
			// a hit that finds the CPU's memory in use is dropped
			for tries := 0; len(seen) == 0 && tries < 3; tries++ {
				enter.hit(arguments{monitor})
				entered.hit(arguments{})
				seen = q.observations(t)
			}
			want, name := object, "Lock"
			if !test.want {
				want, name = 0, ""
			}
			if len(seen) != 1 {
				t.Fatalf("%s, handle %v: %d observations, want one", test.name, handle, len(seen))
			}
			if got := seen[0]; got.seen.Object != want || got.text != name {
				t.Errorf("%s, handle %v: a %q at %#x, want a %q at %#x", test.name, handle, got.text, got.seen.Object,
					name, want)
			}
		}
	}
}
