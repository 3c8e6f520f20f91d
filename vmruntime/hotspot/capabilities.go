package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
)

// What vmruntime lets a Process and a Runtime offer beyond names of code.
var (
	_ vmruntime.AllocationCounter = (*Process)(nil)
	_ vmruntime.Preparer          = (*Process)(nil)
	_ vmruntime.Placer            = (*Process)(nil)
	_ vmruntime.Continuer         = (*Process)(nil)
	_ vmruntime.CallCounter       = (*Process)(nil)
	_ vmruntime.ThreadLister      = (*Process)(nil)
	_ vmruntime.LockLister        = (*Process)(nil)
	_ vmruntime.ThreadNamer       = (*Process)(nil)
	_ vmruntime.ClassReader       = (*Process)(nil)
	_ vmruntime.HeapReader        = (*Process)(nil)
	_ vmruntime.CardReader        = (*Process)(nil)
	_ vmruntime.FlagReader        = (*Process)(nil)
	_ vmruntime.MethodCounter     = (*Process)(nil)
	_ vmruntime.JDK               = (*Process)(nil)
	_ vmruntime.VirtualRunner     = (*Process)(nil)
	_ vmruntime.ClassNamer        = Runtime{}
)

// FeatureRelease is that of the JDK: 8, 17, 25.
func (p *Process) FeatureRelease() int { return p.layout.JDK }

// ClassName is the name of the class whose Klass has that address, as Class.Name has it.
func (p *Process) ClassName(klass uint64, epoch uint32) (string, error) {
	class, err := p.Klass(klass, epoch)
	if err != nil {
		return "", err
	}
	return class.Name, nil
}

// HeapBounds are the addresses of the Java heap, and whether its collector moves objects while Java
// threads run.
func (p *Process) HeapBounds() (low, high uint64, moving, ok bool) {
	h := &p.layout.Objects.Heap
	return h.Low, h.High, h.Collector.Moves(), p.layout.HasObjects
}

// PlaceAt is ObjectAt in the form that all runtimes share.
func (p *Process) PlaceAt(addr uint64, bases ...uint64) (vmruntime.Place, error) {
	object, err := p.ObjectAt(addr, bases...)
	if err != nil {
		return vmruntime.Place{}, err
	}
	return vmruntime.Place{Class: object.Class, Offset: object.Offset, Field: object.Field.Name, Index: object.Index},
		nil
}

// Cards reads where G1's cards are, once. The other collectors' barriers are inlined as a whole.
func (p *Process) Cards() (vmruntime.Cards, error) {
	if p.cards != nil {
		return *p.cards, nil
	}
	if c := p.layout.Objects.Heap.Collector; !p.layout.HasObjects || c != javaheap.CollectorG1 {
		return vmruntime.Cards{}, fmt.Errorf("the collector of this JVM (%v) is not G1: its stores call nothing that "+
			"a probe can observe", c)
	}
	cards, err := p.schema.object.cards.Read(p.memory, p.Number)
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
func (p *Process) Age(addr uint64) (string, error) {
	g, err := p.Generation(addr)
	switch {
	case err != nil || g == javaheap.GenerationUnknown:
		return "", err
	case g == javaheap.GenerationEden:
		g = javaheap.GenerationYoung
	}
	return g.String(), nil
}

// ClassName makes the bytes of the Symbol that names a class a name for people.
func (Runtime) ClassName(symbol []byte) string { return ClassName(symbol) }
