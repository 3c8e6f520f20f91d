package javaobject

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// newClassGuest has two loaders: one with classes A and B and an array class between, the other
// with C. Addresses of what a test may change are returned.
func newClassGuest() (p *Heap, classes []uint64, last, tail []byte) {
	m := &vmtest.Image{Base: 0x1000, Data: make([]byte, 0, 4096)}
	b := m.Words(0)
	array := m.Words(b)
	a := m.Words(array)
	c := m.Words(0)
	second := m.Words(0, c)
	head := m.Words(m.Words(second, a))
	at := func(offset uint32) vmstructs.Field {
		return vmstructs.Field{Offset: offset, Width: 8, Known: true}
	}
	p = NewHeap(javavm.New(&javavm.Build{}, vmruntime.Target{Memory: m.Memory()}))
	p.classList = classListSchema{head: head, next: at(0), first: at(8), nextClass: at(0)}
	return p, []uint64{a, array, b, c}, m.Data[second-m.Base:][:8], m.Data[b-m.Base:][:8]
}

func TestListClasses(t *testing.T) {
	p, want, _, _ := newClassGuest()
	got, err := p.ListClasses()
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%#x, %v, want %#x", got, err, want)
	}
}

// Lists that lead back into themselves end, with an error.
func TestListClassesMalformed(t *testing.T) {
	p, classes, loader, class := newClassGuest()
	head, err := p.Memory.Word(p.classList.head)
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]struct {
		of   []byte
		back uint64
	}{"loaders": {loader, head}, "classes": {class, classes[0]}} {
		for i := range 8 {
			at.of[i] = byte(at.back >> (8 * i))
		}
		if _, err := p.ListClasses(); !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: %v", what, err)
		}
		clear(at.of)
	}
	p.classList.lacks = []string{"ClassLoaderData._klasses"}
	if err := p.CanListClasses(); err == nil || !strings.Contains(err.Error(), "ClassLoaderData._klasses") {
		t.Errorf("%v", err)
	}
}
