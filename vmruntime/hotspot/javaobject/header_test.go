package javaobject

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// TestHeaderForms has what flags and exports of each JDK leave.
func TestHeaderForms(t *testing.T) {
	const pointers, compact = "UseCompressedClassPointers", "UseCompactObjectHeaders"
	exported := objectSchema{
		narrowKlass:  vmstructs.Field{Offset: 8, Width: 4, Known: true},
		klass:        vmstructs.Field{Offset: 8, Width: 8, Known: true},
		markKlassBit: 42,
	}
	without := func(change func(*objectSchema)) objectSchema {
		s := exported
		change(&s)
		return s
	}
	narrow := headerForm{klass: 8, narrow: true, arrayLength: 12}
	inMark := headerForm{inMark: true, bit: 42, arrayLength: 8}
	wide := headerForm{klass: 8, arrayLength: 16}
	for name, test := range map[string]struct {
		schema objectSchema
		flags  vmstructs.FlagValues
		want   []headerForm
	}{
		"17":                     {exported, vmstructs.FlagValues{pointers: 1}, []headerForm{narrow}},
		"17, wide":               {exported, vmstructs.FlagValues{pointers: 0}, []headerForm{wide}},
		"25":                     {exported, vmstructs.FlagValues{pointers: 1, compact: 0}, []headerForm{narrow}},
		"25, compact":            {exported, vmstructs.FlagValues{pointers: 1, compact: 1}, []headerForm{inMark}},
		"28":                     {exported, vmstructs.FlagValues{compact: 0}, []headerForm{narrow}},
		"28, compact":            {exported, vmstructs.FlagValues{compact: 1}, []headerForm{inMark}},
		"28, 0 in unknown bytes": {exported, vmstructs.FlagValues{compact: 0x100}, []headerForm{narrow}},
		"no flags":               {exported, nil, []headerForm{narrow, inMark}},
		"nothing exported": {without(func(s *objectSchema) {
			s.narrowKlass, s.klass, s.markKlassBit = vmstructs.Field{}, vmstructs.Field{}, 0
		}),
			nil, []headerForm{narrow, inMark}},
		"wide, not exported": {without(func(s *objectSchema) { s.klass = vmstructs.Field{} }),
			vmstructs.FlagValues{pointers: 0}, nil},
		"moved": {without(func(s *objectSchema) { s.narrowKlass.Offset, s.markKlassBit = 12, 40 }), nil,
			[]headerForm{{klass: 12, narrow: true, arrayLength: 16}, {inMark: true, bit: 40, arrayLength: 8}}},
	} {
		got := test.schema.headerForms(test.flags)
		for i := range got {
			got[i].name = ""
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
