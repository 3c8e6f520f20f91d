// Package javaobject finds and reads Java objects of a HotSpot VM, and their classes: which object holds an
// address, of which class it is, which fields that has, and what they refer to.
//
//	heap := javaobject.NewHeap(v)
//	heap.Resolve(tables)
//	err := heap.LayoutObjects()                            // what an object's header is like, by objects
//	object, err := heap.ObjectAt(addr)
//	class, err := heap.Klass(klass, epoch)
//
// Files:
//
//	heap, buffers        the heap's bounds and generations; the free parts of threads' buffers
//	schema, layout       where the VM has what a layout of objects says; reading it
//	header               the form of an object's header
//	class, heads         classes and their fields; how to recognise a class
//	classlist            all classes, and classes by name
//	object, search       which object holds an address
//	references, strings  from objects to others; text
package javaobject

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Heap reads the objects of one VM, and its classes.
type Heap struct {
	*javavm.VM
	schema    objectSchema
	classList classListSchema
	objects   objectTable
	cards     *vmruntime.Cards // nil until they are known
}

// NewHeap is the heap of a VM.
func NewHeap(of *javavm.VM) *Heap { return &Heap{VM: of, objects: newObjectTable()} }

// Resolve looks up the fields of objects and classes. Without them, only these are unknown.
func (p *Heap) Resolve(from *vmstructs.Tables) {
	p.schema, p.classList = newObjectSchema(from), newClassListSchema(from)
}

// ClassName is the name of the class whose Klass has that address, as Class.Name has it.
func (p *Heap) ClassName(klass uint64, epoch uint32) (string, error) {
	class, err := p.Klass(klass, epoch)
	if err != nil {
		return "", err
	}
	return class.Name, nil
}

// HeapBounds are the addresses of the Java heap, and whether its collector moves objects while Java
// threads run.
func (p *Heap) HeapBounds() (low, high uint64, moving, ok bool) {
	h := &p.Layout.Objects.Heap
	return h.Low, h.High, h.Collector.Moves(), p.Layout.HasObjects
}

// PlaceAt is ObjectAt in the form that all runtimes share.
func (p *Heap) PlaceAt(addr uint64, bases ...uint64) (vmruntime.Place, error) {
	object, err := p.ObjectAt(addr, bases...)
	if err != nil {
		return vmruntime.Place{}, err
	}
	return vmruntime.Place{Class: object.Class, Offset: object.Offset, Field: object.Field.Name, Index: object.Index},
		nil
}

// Cards reads where G1's cards are, once. The other collectors' barriers are inlined as a whole.
func (p *Heap) Cards() (vmruntime.Cards, error) {
	if p.cards != nil {
		return *p.cards, nil
	}
	if c := p.Layout.Objects.Heap.Collector; !p.Layout.HasObjects || c != javaheap.CollectorG1 {
		return vmruntime.Cards{}, fmt.Errorf("the collector of this JVM (%v) is not G1: its stores call nothing that "+
			"a probe can observe", c)
	}
	cards, err := p.schema.cards.Read(p.Memory, p.Number)
	if l := &p.Layout.Objects; err == nil {
		cards.Narrow, cards.NarrowBase, cards.NarrowShift = l.OopIsNarrow, l.OopBase, l.OopShift
		if l.Heap.Generations == javaheap.GenerationsByRegion {
			cards.Region = 1 << l.Heap.RegionShift
		}
		p.cards = &cards
	}
	return cards, err
}

// Age is Generation in the form that all runtimes share.
func (p *Heap) Age(addr uint64) (string, error) {
	g, err := p.Generation(addr)
	switch {
	case err != nil || g == javaheap.GenerationUnknown:
		return "", err
	case g == javaheap.GenerationEden:
		g = javaheap.GenerationYoung
	}
	return g.String(), nil
}

// Generation says in which generation an address in the heap is now: at most two reads of a word.
// It is unknown if addr is not in the heap, in memory that is free, or if the generations of the
// collector are not known.
func (p *Heap) Generation(addr uint64) (javaheap.Generation, error) {
	l := &p.Layout.Objects.Heap
	if !p.Layout.HasObjects || !l.Contains(addr) {
		return javaheap.GenerationUnknown, nil
	}
	switch l.Generations {
	case javaheap.GenerationsByBounds:
		if addr >= l.YoungLow && addr < l.YoungHigh {
			return javaheap.GenerationYoung, nil
		}
		return javaheap.GenerationOld, nil
	case javaheap.GenerationsByRegion:
		region, err := p.Memory.Word(l.RegionTable + vmstructs.WordSize*(addr>>l.RegionShift))
		if err != nil || region == 0 {
			return javaheap.GenerationUnknown, err
		}
		tag, err := p.Memory.Bytes(region+uint64(l.RegionTag), 4)
		if err != nil {
			return javaheap.GenerationUnknown, err
		}
		return l.GenerationOfTag(uint32(vmstructs.Number(tag))), nil
	}
	return javaheap.GenerationUnknown, nil
}

// Collections implements vmruntime.VirtualLister.
func (p *Heap) Collections() (uint64, error) {
	s := &p.schema.heap
	if !s.Collections.Known || !s.Collecting.Known {
		return 0, nil
	}
	heap, err := p.Memory.Word(s.Heap)
	if err != nil {
		return 0, err
	}
	words, err := p.Words([]uint64{s.Collections.At(heap)}, uint64(s.Collections.Width))
	if err != nil {
		return 0, err
	}
	active, err := p.Words([]uint64{s.Collecting.At(heap)}, uint64(s.Collecting.Width))
	if err == nil && active[0] != 0 {
		err = vmruntime.ErrMoved
	}
	return words[0], err
}
