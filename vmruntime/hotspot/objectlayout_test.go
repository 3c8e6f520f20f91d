package hotspot

import (
	"encoding/binary"
	"testing"
)

func TestNewShape(t *testing.T) {
	array := func(tag, header, shift uint32) int32 { return int32(tag<<30 | header<<16 | 8<<8 | shift) }
	for _, test := range []struct {
		helper int32
		want   shape
		ok     bool
	}{
		{24, shape{size: 24}, true},
		{25, shape{size: 24}, true}, // slow to allocate
		{8, shape{size: 8}, true},
		{1, shape{}, false},
		{0, shape{array: true}, false},
		{array(3, 16, 0), shape{array: true, header: 16}, true},
		{array(2, 12, 2), shape{array: true, header: 12, shift: 2}, true},
		{array(3, 16, 3), shape{array: true, header: 16, shift: 3}, true},
		{array(3, 16, 4), shape{array: true, header: 16, shift: 4}, false},
		{array(2, 0, 2), shape{array: true, shift: 2}, false},
	} {
		if got, ok := newShape(test.helper); ok != test.ok || ok && got != test.want {
			t.Errorf("%#x: %+v, %v, want %+v, %v", uint32(test.helper), got, ok, test.want, test.ok)
		}
	}
	for _, test := range []struct {
		shape             shape
		length, alignment uint32
		want              uint64
	}{
		{shape{size: 24}, 99, 8, 24},
		{shape{size: 24}, 0, 32, 32},
		{shape{array: true, header: 16}, 0, 8, 16},
		{shape{array: true, header: 16}, 1, 8, 24},
		{shape{array: true, header: 12, shift: 2}, 3, 8, 24},
		{shape{array: true, header: 16, shift: 3}, 1<<31 - 1, 8, 16 + 8*(1<<31-1)},
	} {
		if got := test.shape.bytes(test.length, test.alignment); got != test.want {
			t.Errorf("%+v of length %d has %d bytes, want %d", test.shape, test.length, got, test.want)
		}
	}
}

// TestHeaders decodes headers of each form that JDKs have.
func TestHeaders(t *testing.T) {
	header := func(words ...uint64) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	wide := ObjectLayout{Klass: 8, ArrayLength: 16, MarkBits: 39}
	narrow := ObjectLayout{Klass: 8, KlassIsNarrow: true, KlassBase: 0x10_0000_0000, KlassShift: 3, ArrayLength: 12, MarkBits: 39}
	compact := ObjectLayout{KlassInMark: true, KlassBit: 42, KlassBase: 0x10_0000_0000, KlassShift: 10, ArrayLength: 8, MarkBits: 42}
	for name, test := range map[string]struct {
		layout ObjectLayout
		header []byte
		size   uint64
		klass  uint64 // 0 if it is no object
		length uint32
	}{
		"wide":             {wide, header(1, 0x7f00_0000_1000, 5), 20, 0x7f00_0000_1000, 5},
		"wide, odd":        {wide, header(1, 0x7f00_0000_1001, 5), 20, 0, 0},
		"wide, kernel":     {wide, header(1, 0xffff_0000_0000_1000, 5), 20, 0, 0},
		"narrow":           {narrow, header(1, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"narrow, null":     {narrow, header(1, 7<<32), 16, 0, 0},
		"hash":             {narrow, header(0x12_3456_7801, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"no such hash":     {narrow, header(0x9912_3456_7801, 7<<32|0x200), 16, 0, 0},
		"locked":           {narrow, header(0x7f00_1234_5678, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"monitor":          {narrow, header(0x7f00_1234_5672, 7<<32|0x200), 16, 0x10_0000_1000, 7},
		"no such monitor":  {narrow, header(0x1_7f00_1234_5672, 7<<32|0x200), 16, 0, 0},
		"compact":          {compact, header(4<<42|0x12_3456_7801, 9), 12, 0x10_0000_1000, 9},
		"compact, no klas": {compact, header(0x12_3456_7801, 9), 12, 0, 0},
	} {
		if got := test.layout.headerSize(); got != test.size {
			t.Errorf("%s: header of %d bytes, want %d", name, got, test.size)
		}
		got := test.layout.appendCandidate(nil, 0x40, test.header[:test.size])
		if test.klass == 0 {
			if len(got) > 0 {
				t.Errorf("%s: %+v, want none", name, got)
			}
		} else if len(got) != 1 || got[0] != (candidate{0x40, test.klass, test.length}) {
			t.Errorf("%s: %+v, want class %#x, length %d", name, got, test.klass, test.length)
		}
	}
}

func TestUncolour(t *testing.T) {
	const object = 0x400_0012_3458
	for name, test := range map[string]struct {
		layout    ObjectLayout
		reference uint64
		want      uint64
	}{
		"no colours": {ObjectLayout{}, object, object},
		"null":       {ObjectLayout{OopIsColoured: true}, 0, 0},
		"bit 12":     {ObjectLayout{OopIsColoured: true}, object<<13 | 1<<12 | 0x540, object},
		"bit 15":     {ObjectLayout{OopIsColoured: true}, object<<16 | 1<<15 | 0x540, object},
		"no bit":     {ObjectLayout{OopIsColoured: true}, 0x540, 0},
		"arm64":      {ObjectLayout{OopIsColoured: true, OopColourShift: colourShiftARM64}, object<<16 | 0xf540, object},
	} {
		if got := test.layout.uncolour(test.reference); got != test.want {
			t.Errorf("%s: %#x, want %#x", name, got, test.want)
		}
	}
}

// TestGenerationOfTag has the tags of G1's regions, of JDK 17 and 25.
func TestGenerationOfTag(t *testing.T) {
	jdk17 := HeapLayout{EdenTag: 2, SurvivorTag: 3, HumongousMask: 4, OldMask: 16}
	jdk25 := HeapLayout{EdenTag: 2, SurvivorTag: 3, HumongousMask: 4, OldMask: 8}
	for _, test := range []struct {
		layout HeapLayout
		tag    uint32
		want   Generation
	}{
		{jdk17, 0, GenerationUnknown}, {jdk17, 2, GenerationEden}, {jdk17, 3, GenerationSurvivor},
		{jdk17, 12, GenerationHumongous}, {jdk17, 13, GenerationHumongous}, {jdk17, 16, GenerationOld},
		{jdk17, 56, GenerationOld}, // archived
		{jdk25, 0, GenerationUnknown}, {jdk25, 2, GenerationEden}, {jdk25, 3, GenerationSurvivor},
		{jdk25, 4, GenerationHumongous}, {jdk25, 5, GenerationHumongous}, {jdk25, 8, GenerationOld},
	} {
		if got := test.layout.generation(test.tag); got != test.want {
			t.Errorf("tag %d is %v, want %v", test.tag, got, test.want)
		}
	}
	if GenerationHumongous.String() != "humongous" || Generation(99).String() != "unknown" || CollectorEpsilon.String() != "Epsilon" || Collector(99).String() != "unknown" {
		t.Error("names of generations or collectors")
	}
}

// TestHasSupers tells classes from what else has a vtable, by what they have of their superclasses.
func TestHasSupers(t *testing.T) {
	const object, parent, klass = 0x1000, 0x2000, 0x3000
	const checkOffset, secondary, primary, limit = 20, 32, 48, 8
	schema := &schema{object: objectSchema{
		superCheck: field{checkOffset, 4, true},
		secondary:  field{secondary, wordSize, true},
		primary:    field{primary, limit * wordSize, true},
	}}
	for name, test := range map[string]struct {
		known  uint64 // the class of java.lang.Object
		check  uint32
		supers []uint64
		want   bool
	}{
		"third":                  {object, primary + 16, []uint64{object, parent, klass}, true},
		"Object is not known":    {0, primary + 16, []uint64{object, parent, klass}, true},
		"interface or far below": {object, secondary, []uint64{object}, true},
		"last":                   {object, primary + 56, []uint64{object, 1, 2, 3, 4, 5, 6, klass}, true},
		"another Object":         {0x1008, primary + 16, []uint64{object, parent, klass}, false},
		"no superclass":          {0, secondary, nil, false},
		"another one":            {object, primary + 8, []uint64{object, parent, klass}, false},
		"between two":            {object, primary + 12, []uint64{object, parent, klass}, false},
		"between, at the end":    {object, primary + 60, []uint64{object, parent, klass}, false},
		"before":                 {object, primary - 8, []uint64{object, parent, klass}, false},
		"behind":                 {object, primary + 64, []uint64{object, 1, 2, 3, 4, 5, 6, 7}, false},
	} {
		head := make([]byte, primary+limit*wordSize)
		binary.LittleEndian.PutUint32(head[checkOffset:], test.check)
		for i, super := range test.supers {
			binary.LittleEndian.PutUint64(head[primary+wordSize*i:], super)
		}
		p := &Process{schema: schema}
		p.objects.object = test.known
		if got := p.hasSupers(klass, head); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
