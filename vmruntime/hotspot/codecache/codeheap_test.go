package codecache

import (
	"errors"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// heapImage lays out code heaps: a CodeHeap is two VirtualSpaces of low, high and boundary, and the
// log2 of the segment size.
func heapImage(m *vmtest.Image, heaps ...[7]uint64) *Schema {
	word := func(i uint32) vmstructs.Field { return vmstructs.Field{Offset: 8 * i, Width: 8, Known: true} }
	s := &Schema{
		arrayLen: vmstructs.Field{Offset: 0, Width: 4, Known: true}, arrayData: word(1),
		memory: word(0), segmap: word(3), segmentShift: word(6), heapSize: 56,
		low: word(0), high: word(1), boundary: word(2),
	}
	var pointers []uint64
	for _, h := range heaps {
		pointers = append(pointers, m.Words(h[:]...))
	}
	s.Heaps = m.Words(m.Words(uint64(len(heaps)), m.Words(pointers...)))
	if len(pointers) > 0 {
		s.heap = m.Words(pointers[0])
	}
	return s
}

func TestReadHeaps(t *testing.T) {
	m := &vmtest.Image{Base: 0x1000}
	s := heapImage(m,
		[7]uint64{0x100000, 0x140000, 0x200000, 0x900000, 0x901000, 0x910000, 7},
		[7]uint64{0x200000, 0x210000, 0x300000, 0xa00000, 0xa01000, 0xa10000, 7})
	want := []Heap{
		{Low: 0x100000, High: 0x200000, Segmap: 0x900000, used: 0x140000},
		{Low: 0x200000, High: 0x300000, Segmap: 0xa00000, used: 0x210000},
	}
	got, shift, err := ReadHeaps(vmstructs.Reader{Mem: m.Memory()}, s)
	if err != nil || shift != 7 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %x, %d, %v; want %x", got, shift, err, want)
	}
	s.Heaps = 0 // JDK 8 has one heap
	if got, _, err := ReadHeaps(vmstructs.Reader{Mem: m.Memory()}, s); err != nil || !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("a single heap: got %x, %v", got, err)
	}
}

func TestReadHeapsRefuses(t *testing.T) {
	good := [7]uint64{0x100000, 0x140000, 0x200000, 0x900000, 0x901000, 0x910000, 7}
	with := func(i int, v uint64) [7]uint64 { h := good; h[i] = v; return h }
	for name, heaps := range map[string][][7]uint64{
		"reserved end before start": {with(2, 0x80000)},
		"used beyond reserved":      {with(1, 0x300000)},
		"too large":                 {with(2, 0x100000+maxHeapSize+1)},
		"segments too small":        {with(6, 1)},
		"segments too large":        {with(6, 60)},
		"not aligned":               {with(0, 0x100010)},
		"different segments":        {good, with(6, 8)},
		"too many":                  {good, good, good, good, good, good, good, good, good},
	} {
		m := &vmtest.Image{Base: 0x1000}
		s := heapImage(m, heaps...)
		if got, _, err := ReadHeaps(vmstructs.Reader{Mem: m.Memory()}, s); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %x, %v", name, got, err)
		}
	}
	m := &vmtest.Image{Base: 0x1000}
	s := heapImage(m)
	if _, _, err := ReadHeaps(vmstructs.Reader{Mem: m.Memory()}, s); !errors.Is(err, vmruntime.ErrStarting) {
		t.Errorf("no heaps: %v", err)
	}
	for what, heap := range map[string][7]uint64{"memory": with(0, 0), "segment map": with(3, 0)} {
		m := &vmtest.Image{Base: 0x1000}
		s := heapImage(m, good, heap)
		if got, _, err := ReadHeaps(vmstructs.Reader{Mem: m.Memory()}, s); !errors.Is(err, vmruntime.ErrStarting) {
			t.Errorf("heap without its %s: %x, %v", what, got, err)
		}
	}
	s.Heaps, s.heap = 0, m.Words(0)
	if _, _, err := ReadHeaps(vmstructs.Reader{Mem: m.Memory()}, s); !errors.Is(err, vmruntime.ErrStarting) {
		t.Errorf("null heap: %v", err)
	}
}
