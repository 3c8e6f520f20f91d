package javaobject

import (
	"encoding/binary"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// TestHasSupers tells classes from what else has a vtable, by what they have of their superclasses.
func TestHasSupers(t *testing.T) {
	const object, parent, klass = 0x1000, 0x2000, 0x3000
	const checkOffset, secondary, primary, limit = 20, 32, 48, 8
	schema := objectSchema{
		superCheck: vmstructs.Field{Offset: checkOffset, Width: 4, Known: true},
		secondary:  vmstructs.Field{Offset: secondary, Width: vmstructs.WordSize, Known: true},
		primary:    vmstructs.Field{Offset: primary, Width: limit * vmstructs.WordSize, Known: true},
	}
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
		head := make([]byte, primary+limit*vmstructs.WordSize)
		binary.LittleEndian.PutUint32(head[checkOffset:], test.check)
		for i, super := range test.supers {
			binary.LittleEndian.PutUint64(head[primary+vmstructs.WordSize*i:], super)
		}
		p := &Heap{schema: schema}
		p.objects.object = test.known
		if got := p.hasSupers(klass, head); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
