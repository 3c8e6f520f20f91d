package hotspot

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// newClassGuest has two loaders: one with classes A and B and an array class between, the other
// with C. A has two methods, B none, C one. Addresses of what a test may change are returned.
func newClassGuest() (p *Process, last, tail []byte) {
	const next, first, nextClass, helper, methods = 0, 8, 0, 8, 16 // offsets
	m := &vmtest.Image{Base: 0x1000, Data: make([]byte, 0, 4096)}
	two, one, none := m.Words(2, 0x70, 0x71), m.Words(1, 0x72), m.Words(0)
	b := m.Words(0, 16, none)
	array := m.Words(b, uint64(0xffffffffc0080000), two) // what would be its methods is something else
	a := m.Words(array, 16, two)
	c := m.Words(0, 17, one)
	second := m.Words(0, c)
	head := m.Words(m.Words(second, a))
	at := func(offset uint32, width uint8) vmstructs.Field {
		return vmstructs.Field{Offset: offset, Width: width, Known: true}
	}
	p = bareProcess(m.Memory())
	p.version.jdk = 17
	p.classList = classListSchema{
		head: head, next: at(next, 8), first: at(first, 8), nextClass: at(nextClass, 8), layoutHelper: at(helper, 4),
	}
	s := &p.profiler.schema
	s.Klass.Methods, s.Klass.MethodArray, s.Pool.ArrayLength = at(methods, 8), at(8, 8), at(0, 4)
	return p, m.Data[second-m.Base:][:8], m.Data[b-m.Base:][:8]
}

func TestMethods(t *testing.T) {
	p, _, _ := newClassGuest()
	methods, err := p.Methods()
	slices.Sort(methods)
	if want := []uint64{0x70, 0x71, 0x72}; err != nil || !slices.Equal(methods, want) {
		t.Errorf("%#x, %v, want %#x", methods, err, want)
	}
}

// Lists that lead back into themselves end, with an error.
func TestMethodsMalformed(t *testing.T) {
	p, loader, class := newClassGuest()
	head, err := p.memory.Word(p.classList.head)
	if err != nil {
		t.Fatal(err)
	}
	first, err := p.memory.Word(head + 8)
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]struct {
		of   []byte
		back uint64
	}{"loaders": {loader, head}, "classes": {class, first}} {
		for i := range 8 {
			at.of[i] = byte(at.back >> (8 * i))
		}
		if _, err := p.Methods(); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
		clear(at.of)
	}
	p.classList.first = vmstructs.Field{}
	p.classList.lacks = []string{"ClassLoaderData._klasses"}
	if _, err := p.Methods(); err == nil || !strings.Contains(err.Error(), "ClassLoaderData._klasses") {
		t.Errorf("%v", err)
	}
	p.version.jdk = 8
	if _, err := p.Methods(); err == nil || !strings.Contains(err.Error(), "use 9 or newer") {
		t.Errorf("JDK 8: %v", err)
	}
}

// Classes that are unloaded while they are listed may be others by then.
func TestMethodsStale(t *testing.T) {
	p, _, _ := newClassGuest()
	epoch := uint32(0)
	p.epoch = func() uint32 { epoch++; return epoch }
	if _, err := p.Methods(); !errors.Is(err, vmruntime.ErrStale) {
		t.Errorf("%v", err)
	}
}
