package methodcounts

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// A class has two methods, one none, one one. An array class has none, whatever it looks like.
func TestListMethods(t *testing.T) {
	const methods = 8 // the offset of the array of methods; that of the layout helper is 0
	m := &vmtest.Image{Base: 0x1000}
	two, one, none := m.Words(2, 0x70, 0x71), m.Words(1, 0x72), m.Words(0)
	classes := []uint64{
		m.Words(16, two), m.Words(16, none), m.Words(uint64(0xffffffffc0080000), two), m.Words(17, one),
	}
	at := func(offset uint32, width uint8) vmstructs.Field {
		return vmstructs.Field{Offset: offset, Width: width, Known: true}
	}
	p := NewProfiler(javaobject.NewHeap(javavm.New(&javavm.Build{}, vmruntime.Target{Memory: m.Memory()})))
	s := &p.schema
	s.Klass.Methods, s.Klass.MethodArray, s.Pool.ArrayLength = at(methods, 8), at(8, 8), at(0, 4)
	got, err := p.listMethods(classes)
	slices.Sort(got)
	if want := []uint64{0x70, 0x71, 0x72}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%#x, %v, want %#x", got, err, want)
	}
}
