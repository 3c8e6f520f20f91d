package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A heap reads the objects of one VM, and its classes.
type heap struct {
	*vm
	schema    objectSchema
	classList classListSchema
	objects   objectTable
	cards     *vmruntime.Cards // nil until they are known
}

func newHeap(of *vm) *heap { return &heap{vm: of, objects: newObjectTable()} }

// resolve looks up the fields of objects and classes. Without them, only these are unknown.
func (p *heap) resolve(from *vmstructs.Tables) {
	p.schema, p.classList = newObjectSchema(from), newClassListSchema(from)
}

// ClassName is the name of the class whose Klass has that address, as Class.Name has it.
func (p *heap) ClassName(klass uint64, epoch uint32) (string, error) {
	class, err := p.Klass(klass, epoch)
	if err != nil {
		return "", err
	}
	return class.Name, nil
}

// HeapBounds are the addresses of the Java heap, and whether its collector moves objects while Java
// threads run.
func (p *heap) HeapBounds() (low, high uint64, moving, ok bool) {
	h := &p.layout.Objects.Heap
	return h.Low, h.High, h.Collector.Moves(), p.layout.HasObjects
}

// PlaceAt is ObjectAt in the form that all runtimes share.
func (p *heap) PlaceAt(addr uint64, bases ...uint64) (vmruntime.Place, error) {
	object, err := p.ObjectAt(addr, bases...)
	if err != nil {
		return vmruntime.Place{}, err
	}
	return vmruntime.Place{Class: object.Class, Offset: object.Offset, Field: object.Field.Name, Index: object.Index},
		nil
}

// Cards reads where G1's cards are, once. The other collectors' barriers are inlined as a whole.
func (p *heap) Cards() (vmruntime.Cards, error) {
	if p.cards != nil {
		return *p.cards, nil
	}
	if c := p.layout.Objects.Heap.Collector; !p.layout.HasObjects || c != javaheap.CollectorG1 {
		return vmruntime.Cards{}, fmt.Errorf("the collector of this JVM (%v) is not G1: its stores call nothing that "+
			"a probe can observe", c)
	}
	cards, err := p.schema.cards.Read(p.memory, p.Number)
	if l := &p.layout.Objects; err == nil {
		cards.Narrow, cards.NarrowBase, cards.NarrowShift = l.OopIsNarrow, l.OopBase, l.OopShift
		if l.Heap.Generations == javaheap.GenerationsByRegion {
			cards.Region = 1 << l.Heap.RegionShift
		}
		p.cards = &cards
	}
	return cards, err
}

// Age is Generation in the form that all runtimes share.
func (p *heap) Age(addr uint64) (string, error) {
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
func (p *heap) Generation(addr uint64) (javaheap.Generation, error) {
	l := &p.layout.Objects.Heap
	if !p.layout.HasObjects || !l.Contains(addr) {
		return javaheap.GenerationUnknown, nil
	}
	switch l.Generations {
	case javaheap.GenerationsByBounds:
		if addr >= l.YoungLow && addr < l.YoungHigh {
			return javaheap.GenerationYoung, nil
		}
		return javaheap.GenerationOld, nil
	case javaheap.GenerationsByRegion:
		region, err := p.memory.Word(l.RegionTable + vmstructs.WordSize*(addr>>l.RegionShift))
		if err != nil || region == 0 {
			return javaheap.GenerationUnknown, err
		}
		tag, err := p.memory.Bytes(region+uint64(l.RegionTag), 4)
		if err != nil {
			return javaheap.GenerationUnknown, err
		}
		return l.GenerationOfTag(uint32(vmstructs.Number(tag))), nil
	}
	return javaheap.GenerationUnknown, nil
}
