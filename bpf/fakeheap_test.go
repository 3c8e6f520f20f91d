//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"testing"
)

// A fakeHeap is what the kernel side sees of a VM's objects: symbols, classes and objects in memory
// of this process.
type fakeHeap struct {
	HotspotHeap
	mem region
	top uint64 // where the next structure goes
}

// newFakeHeap has classes in references of 64 bits.
func newFakeHeap(t *testing.T) *fakeHeap {
	t.Helper()
	h := &fakeHeap{mem: newRegion(t, 1<<20)}
	h.top = h.mem.base + 4096 // nothing has the number 0
	h.Serial = proberSerial
	h.ObjectKlass, h.ArrayLength = 8, 16
	h.KlassName, h.KlassLayout, h.SymbolLength, h.SymbolBody = 24, 8, 4, 6
	h.TlabStart, h.TlabEnd = 64, 64 // threads have no buffers
	return h
}

// allocate returns zeroed memory. It is aligned as classes are with a shift of 10.
func (h *fakeHeap) allocate(n uint64) uint64 {
	addr := h.top
	h.top += (n + 1023) &^ 1023
	return addr
}

func (h *fakeHeap) symbol(name string) uint64 {
	s := h.allocate(uint64(len(name)) + 8)
	h.mem.put16(s+uint64(h.SymbolLength), uint16(len(name)))
	h.mem.put(s+uint64(h.SymbolBody), []byte(name))
	return s
}

// klass returns a class; layout is Klass::_layout_helper.
func (h *fakeHeap) klass(name string, layout int32) uint64 {
	k := h.allocate(64)
	h.mem.put64(k+uint64(h.KlassName), h.symbol(name))
	h.mem.put32(k+uint64(h.KlassLayout), uint32(layout))
	return k
}

// object returns an object of the class, which is an array of so many elements if it is one.
func (h *fakeHeap) object(klass uint64, elements uint32) uint64 {
	o := h.allocate(64)
	narrow := (klass - h.NarrowKlassBase) >> h.NarrowKlassShift
	switch {
	case h.Flags&HeapCompactHeader != 0:
		h.mem.put64(o+uint64(h.ObjectKlass), narrow<<h.KlassBit|1) // and the bits of the lock
	case h.Flags&HeapNarrowKlass != 0:
		h.mem.put32(o+uint64(h.ObjectKlass), uint32(narrow))
	default:
		h.mem.put64(o+uint64(h.ObjectKlass), klass)
	}
	h.mem.put32(o+uint64(h.ArrayLength), elements)
	return o
}

// reference puts a reference to object at addr, as fields of objects have them.
func (h *fakeHeap) reference(addr, object uint64) {
	if h.Flags&HeapNarrowOop != 0 {
		h.mem.put32(addr, uint32((object-h.NarrowOopBase)>>h.NarrowOopShift))
		return
	}
	h.mem.put64(addr, h.coloured(object))
}

// coloured is object with the bits of the collector; with a shift of 0 those say that it is 14.
func (h *fakeHeap) coloured(object uint64) uint64 {
	switch {
	case h.Flags&HeapColoured == 0:
		return object
	case h.OopColourShift > 0:
		return object<<h.OopColourShift | 0xf0
	}
	return object<<14 | 1<<13
}

// region makes the fake heap one of G1, whose regions of 4 KB have the given types from address
// from on. Zero is no region.
func (h *fakeHeap) regions(from uint64, types ...uint32) {
	h.Flags |= HeapRegions
	h.RegionShift, h.RegionType = 12, 4
	h.RegionEden, h.RegionSurvivor, h.RegionHumongousMask, h.RegionOldMask = 2, 3, 4, 16
	table := h.allocate(8 * uint64(len(types)))
	h.RegionTable = table - 8*(from>>12)
	for i, typ := range types {
		if typ == 0 {
			continue
		}
		r := h.allocate(16)
		binary.NativeEndian.PutUint32(h.mem.at(r+uint64(h.RegionType)), typ)
		h.mem.put64(table+8*uint64(i), r)
	}
}
