package vmstructs

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

func TestReadStructs(t *testing.T) {
	m := &vmtest.Image{Base: 0x10000}
	symbols := vmtest.Tables(m)
	got, err := ReadTables(Reader{m.Memory()}, vmtest.Lookup(symbols))
	if err != nil {
		t.Fatal(err)
	}
	want := &Tables{
		Fields: map[string]StructField{
			"CodeBlob._name":   {value: 96, width: 8},
			"CodeBlob._size":   {value: 12, width: 4},
			"nmethod._state":   {value: 315, width: 1},
			"CodeCache._heaps": {static: true, value: 0x7f00, width: 8},
		},
		Sizes:     map[string]uint64{"CodeBlob": 104, "nmethod": 352},
		Constants: map[string]int64{"frame::entry_frame_call_wrapper_offset": -6, "markWord::age_mask": 1 << 40},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	delete(symbols, "gHotSpotVMTypeEntrySizeOffset")
	if _, err := ReadTables(Reader{m.Memory()}, vmtest.Lookup(symbols)); err == nil ||
		!strings.Contains(err.Error(), "gHotSpotVMTypeEntrySizeOffset") {
		t.Errorf("without a symbol: %v", err)
	}
}

func TestReadStructsRefuses(t *testing.T) {
	for name, change := range map[string]uint64{"ArrayStride": maxEntrySize + 8, "TypeNameOffset": 1 << 40} {
		m := &vmtest.Image{Base: 0x10000}
		symbols := vmtest.Tables(m)
		symbols["gHotSpotVMStructEntry"+name] = m.Words(change)
		if _, err := ReadTables(Reader{m.Memory()}, vmtest.Lookup(symbols)); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s of %d: %v", name, change, err)
		}
	}
	m := &vmtest.Image{Base: 0x10000}
	symbols := vmtest.Tables(m)
	endless := m.Words(slices.Repeat([]uint64{m.Text("x")}, 2*(maxEntries+1000))...)
	symbols["gHotSpotVMTypes"] = m.Words(endless)
	if _, err := ReadTables(Reader{m.Memory()}, vmtest.Lookup(symbols)); !errors.Is(err, vmruntime.ErrMalformed) {
		t.Errorf("array without end: %v", err)
	}
}
