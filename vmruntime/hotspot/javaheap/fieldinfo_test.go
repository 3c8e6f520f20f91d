package javaheap

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// What JDK 28 exports as bits of field flags.
var testFieldBits = FieldBits{initialised: 1 << 0, injected: 1 << 1, generic: 1 << 2, contended: 1 << 4,
	flat: 1 << 6, nullMarker: 1 << 7}

func shorts(values ...uint16) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

func stream(values ...uint32) (b []byte) {
	for _, v := range values {
		b = append(b, vmtest.Unsigned5(v, 1)...)
	}
	return b
}

func TestParseFieldArray(t *testing.T) {
	offset := func(n uint32) (low, high uint16) {
		n = n<<packedShift | packedIsOffset
		return uint16(n), uint16(n >> 16)
	}
	low12, high12 := offset(12)
	lowFar, highFar := offset(0x12345)
	plain := []uint16{0x2, 10, 11, 0, low12, high12}
	generic := []uint16{accessGeneric, 20, 21, 0, lowFar, highFar}
	static := []uint16{accessStatic, 30, 31, 5, low12, high12}
	unplaced := []uint16{0, 40, 41, 0, 0x10, 0}
	injected := []uint16{0x400, 50, 51, 0, low12, high12}
	plainRecord := FieldRecord{Name: 10, Signature: 11, Offset: 12}
	genericRecord := FieldRecord{Name: 20, Signature: 21, Offset: 0x12345}
	staticRecord := FieldRecord{Name: 30, Signature: 31, Offset: 12, Static: true}
	injectedRecord := FieldRecord{Name: 50, Signature: 51, Offset: 12, Injected: true}
	for name, test := range map[string]struct {
		data     []byte
		declared int
		want     []FieldRecord
	}{
		"none": {nil, 0, nil},
		"all": {shorts(slices.Concat(plain, generic, static, []uint16{77})...), 3,
			[]FieldRecord{plainRecord, genericRecord, staticRecord}},
		"not placed": {shorts(slices.Concat(unplaced, plain)...), 2, []FieldRecord{plainRecord}},
		"injected": {shorts(slices.Concat(generic, injected, []uint16{77})...), 1,
			[]FieldRecord{genericRecord, injectedRecord}},
		"six are generic": {shorts(slices.Concat(generic, generic, generic, generic, generic, generic,
			[]uint16{1, 2, 3, 4, 5, 6})...), 6, slices.Repeat([]FieldRecord{genericRecord}, 6)},
		"cut":      {shorts(slices.Concat(plain, static[:5])...), 2, []FieldRecord{plainRecord}},
		"cut byte": {shorts(plain...)[:11], 1, nil},
		"too many": {slices.Repeat(shorts(plain...), maxFields+1), maxFields + 1,
			slices.Repeat([]FieldRecord{plainRecord}, maxFields)},
	} {
		if got := ParseFieldArray(test.data, test.declared); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestParseFieldStream(t *testing.T) {
	first := []uint32{10, 11, 12, 0x2, 0}
	all := []uint32{20, 21, 70_000, accessStatic, 1<<0 | 1<<2 | 1<<4, 1, 2, 3} // each flag with its number
	injected := []uint32{50, 51, 16, 0, 1 << 1}
	flat := []uint32{60, 61, 24, 0, 1<<6 | 1<<7, 3, 28} // the form, and where it says that it is null
	flatRecord := FieldRecord{Name: 60, Signature: 61, Offset: 24}
	firstRecord := FieldRecord{Name: 10, Signature: 11, Offset: 12}
	allRecord := FieldRecord{Name: 20, Signature: 21, Offset: 70_000, Static: true}
	injectedRecord := FieldRecord{Name: 50, Signature: 51, Offset: 16, Injected: true}
	for name, test := range map[string]struct {
		data []byte
		want []FieldRecord
		ok   bool
	}{
		"none": {stream(0, 0), nil, true},
		"three": {append(stream(slices.Concat([]uint32{2, 1}, all, first, injected)...), 0, 9),
			[]FieldRecord{allRecord, firstRecord, injectedRecord}, true},
		"flat": {stream(slices.Concat([]uint32{2, 0}, flat, first)...), []FieldRecord{flatRecord, firstRecord},
			true},
		"cut":      {stream(slices.Concat([]uint32{2, 0}, first, all[:7])...), nil, false},
		"empty":    {nil, nil, false},
		"end mark": {append(stream(2, 0), 0), nil, false},
		"too many": {stream(maxFields, 1), nil, false},
		"overflow": {stream(1<<32-1, 2), nil, false},
	} {
		got, err := ParseFieldStream(test.data, 1, testFieldBits)
		if (err == nil) != test.ok || !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, test.want)
		}
	}
}

// FuzzFieldInfo checks both forms of field information: bounds are kept, and a stream that was
// understood is understood in the same way when something follows.
func FuzzFieldInfo(f *testing.F) {
	f.Add(shorts(0x2, 10, 11, 0, 12<<2|1, 0), 1)
	f.Add(stream(1, 1, 20, 21, 70_000, 8, 21, 1, 2, 3, 50, 51, 16, 0, 2), 0)
	f.Fuzz(func(t *testing.T, data []byte, declared int) {
		if records := ParseFieldArray(data, declared); len(records) > maxFields ||
			len(records)*2*fieldSlots > len(data) {
			t.Fatalf("%d records in %d bytes", len(records), len(data))
		}
		records, err := ParseFieldStream(data, 1, testFieldBits)
		if err != nil {
			if records != nil {
				t.Fatalf("%+v, %v", records, err)
			}
			return
		}
		if len(records) > maxFields || 5*len(records) > len(data) {
			t.Fatalf("%d records in %d bytes", len(records), len(data))
		}
		again, err := ParseFieldStream(append(slices.Clip(data), 0, 255), 1, testFieldBits)
		if err != nil || !slices.Equal(again, records) {
			t.Fatalf("%+v, but with a tail %+v, %v", records, again, err)
		}
	})
}

// TestFieldBits: a flag that the VM does not have is none, and not the one of the lowest bit.
func TestFieldBits(t *testing.T) {
	r := &vmstructs.Resolver{Tables: &vmstructs.Tables{Constants: map[string]int64{
		"FieldInfo::FieldFlags::_ff_initialized": 0, "FieldInfo::FieldFlags::_ff_generic": 2,
	}}}
	if got, want := NewFieldBits(r), (FieldBits{initialised: 1, generic: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
