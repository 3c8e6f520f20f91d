package hotspot

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// structsImage lays out the four arrays as HotSpot does, with gaps and columns in another order.
func structsImage(m *image) (symbols map[string]uint64) {
	symbols = make(map[string]uint64)
	field := func(class, name, typ string, static, offset, addr uint64) []uint64 {
		// type name, field name, type, static, offset, address; then a gap
		return []uint64{m.text(class), m.text(name), m.text(typ), static, offset, addr, 0xbad}
	}
	tables := map[string][][]uint64{
		"VMStructs": {
			field("CodeBlob", "_name", "const char*", 0, 96, 0),
			field("CodeBlob", "_size", "int", 0, 12, 0),
			field("nmethod", "_state", "volatile signed char", 0, 315, 0),
			field("CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", 1, 0, 0x7f00),
		},
		"VMTypes":         {{m.text("CodeBlob"), 104}, {m.text("nmethod"), 352}},
		"VMIntConstants":  {{m.text("frame::entry_frame_call_wrapper_offset"), 0xffff_fffa}},
		"VMLongConstants": {{m.text("markWord::age_mask"), 1 << 40}},
	}
	for _, table := range vmTables {
		rows := tables[table.array]
		var all []uint64
		for _, row := range rows {
			all = append(all, row...)
		}
		size := len(rows[0])
		all = append(all, make([]uint64, size)...) // the end mark
		array := m.words(all...)
		names := table.symbols()
		symbols[names[0]] = m.words(array)
		symbols[names[1]] = m.words(uint64(8 * size))
		for i, name := range names[2:] {
			symbols[name] = m.words(uint64(8 * i))
		}
	}
	return symbols
}

func lookupIn(symbols map[string]uint64) func(string) (uint64, bool) {
	return func(name string) (uint64, bool) { addr, ok := symbols[name]; return addr, ok }
}

func TestReadStructs(t *testing.T) {
	m := &image{base: 0x10000}
	symbols := structsImage(m)
	got, err := readStructs(target{m.memory()}, lookupIn(symbols))
	if err != nil {
		t.Fatal(err)
	}
	want := &structs{
		fields: map[string]structField{
			"CodeBlob._name":   {value: 96, width: 8},
			"CodeBlob._size":   {value: 12, width: 4},
			"nmethod._state":   {value: 315, width: 1},
			"CodeCache._heaps": {static: true, value: 0x7f00, width: 8},
		},
		sizes:     map[string]uint64{"CodeBlob": 104, "nmethod": 352},
		constants: map[string]int64{"frame::entry_frame_call_wrapper_offset": -6, "markWord::age_mask": 1 << 40},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	delete(symbols, "gHotSpotVMTypeEntrySizeOffset")
	if _, err := readStructs(target{m.memory()}, lookupIn(symbols)); err == nil || !strings.Contains(err.Error(), "gHotSpotVMTypeEntrySizeOffset") {
		t.Errorf("without a symbol: %v", err)
	}
}

func TestReadStructsRefuses(t *testing.T) {
	for name, change := range map[string]uint64{"ArrayStride": maxEntrySize + 8, "TypeNameOffset": 1 << 40} {
		m := &image{base: 0x10000}
		symbols := structsImage(m)
		symbols["gHotSpotVMStructEntry"+name] = m.words(change)
		if _, err := readStructs(target{m.memory()}, lookupIn(symbols)); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s of %d: %v", name, change, err)
		}
	}
	m := &image{base: 0x10000}
	symbols := structsImage(m)
	endless := m.words(slices.Repeat([]uint64{m.text("x")}, 2*(maxEntries+1000))...)
	symbols["gHotSpotVMTypes"] = m.words(endless)
	if _, err := readStructs(target{m.memory()}, lookupIn(symbols)); !errors.Is(err, vmruntime.ErrMalformed) {
		t.Errorf("array without end: %v", err)
	}
}
