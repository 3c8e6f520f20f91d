package javaheap

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

func known(offset uint32) vmstructs.Field {
	return vmstructs.Field{Offset: offset, Width: vmstructs.WordSize, Known: true}
}

// zForwarding is the part of the VM's tables that leads to forwardings; the offsets are those of no
// build.
func zForwarding() forwardingSchema {
	return forwardingSchema{
		heap: known(8), heapSize: 96,
		pages: known(16), pagesMap: known(0), granules: known(8), granuleShift: 21,
		virtual: known(0), virtualStart: known(8), alignmentShift: known(24), entries: known(32), length: known(0),
		size: 48,
	}
}

func TestForwarding(t *testing.T) {
	const (
		heapLow  = 1 << 28
		granules = 1 << 42 >> 21
		pages    = 0x7000_0000
		young    = 0x7100_0000
		old      = 0x7200_0000
	)
	words := func(generations ...uint64) []uint64 {
		// The heap is a CollectedHeap's word, and ZHeap up to its table of pages.
		heap := []uint64{0xc0ffee, granules, 0x6000_0000, granules, pages}
		return append(heap, append(generations, make([]uint64, 12)...)...)
	}
	want := Forwarding{GranuleShift: 21, Start: 8, AlignmentShift: 24, Length: 32, Entries: 48}
	of := func(tables ...uint64) Forwarding {
		f := want
		copy(f.Tables[:], tables)
		return f
	}
	for name, test := range map[string]struct {
		words []uint64
		lack  func(*forwardingSchema)
		want  Forwarding
	}{
		"two generations":                 {words(1, granules, old, 7, granules, young), nil, of(old, young)},
		"one":                             {words(granules, old), nil, of(old)},
		"none":                            {words(), nil, Forwarding{}},
		"not there yet":                   {words(granules, 0), nil, Forwarding{}},
		"no pointer":                      {words(granules, old+8), nil, Forwarding{}},
		"another size":                    {words(granules+1, old), nil, Forwarding{}},
		"shorter than the table of pages": {words(1<<10, old, 7, 1<<10, young), nil, of(old, young)},
		"shorter, and others": {words(1<<8, old+4096, 1<<10, old, 1<<10, young, 1<<9, old+8192), nil,
			of(old, young)},
		"shorter, and pairs of numbers": {words(1, 4096, 1, 4096, 1<<10, old, 1<<10, young, 1), nil, of(old, young)},
		"one shorter":                   {words(1<<10, old), nil, Forwarding{}},
		"three shorter":                 {words(1<<10, old, 1<<10, young, 1<<10, pages), nil, Forwarding{}},
		"two longer":                    {words(granules+1, old, granules+1, young), nil, Forwarding{}},
		"offsets in the heap":           {words(granules, heapLow-4096, granules, old), nil, of(old)},
		"behind ZHeap":                  {words(1, 2, 3, 4, 5, 6, 7, 8, granules, old), nil, Forwarding{}},
		"too many":                      {words(granules, old, granules, young, granules, young), nil, Forwarding{}},
		"no field": {words(granules, old),
			func(s *forwardingSchema) { s.length = vmstructs.Field{} }, Forwarding{}},
		"no size of the heap": {words(granules, old), func(s *forwardingSchema) { s.heapSize = 0 },
			Forwarding{}},
		"no table of pages": {append(append(make([]uint64, 5), granules, old), make([]uint64, 12)...),
			nil, Forwarding{}},
		"no size of granules": {words(granules, old), func(s *forwardingSchema) { s.granuleShift = 0 },
			Forwarding{}},
	} {
		image := vmtest.Image{Base: 0x10000}
		heap := image.Words(test.words...)
		static := image.Words(heap)
		schema := zForwarding()
		if test.lack != nil {
			test.lack(&schema)
		}
		r := Reader{
			Reader:  vmstructs.Reader{Mem: image.Memory()},
			Heap:    &Schema{Heap: static},
			Colours: &ColourSchema{forwarding: schema, generational: true},
		}
		if got, err := r.Forwarding(heapLow); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
		r.Flags = vmstructs.FlagValues{"ZGenerational": 0} // its tables are those of the other ZGC
		if got, err := r.Forwarding(heapLow); err != nil || got.Known() {
			t.Errorf("%s, without generations: %+v, %v", name, got, err)
		}
	}
}
