package javaobject

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Bounds on the list of classes. JVMs with 100,000 of them have been seen.
const (
	maxLoaders = 1 << 17 // class loaders; every lambda of JDK 11 to 14 has one of its own
	maxClasses = 1 << 19
)

// A classListSchema leads to all classes: a list of the loaders' data
// (src/hotspot/share/classfile/classLoaderData.hpp), and in each a list of classes.
type classListSchema struct {
	head         uint64          // static
	next, first  vmstructs.Field // fields of ClassLoaderData
	nextClass    vmstructs.Field // field of Klass
	layoutHelper vmstructs.Field // field of Klass
	lacks        []string
}

func newClassListSchema(from *vmstructs.Tables) classListSchema {
	r := &vmstructs.Resolver{Tables: from} // a resolver of its own: without it, only this does not work
	s := classListSchema{
		head:         r.Static("ClassLoaderDataGraph._head"),
		next:         r.Field("ClassLoaderData._next"),
		first:        r.Field("ClassLoaderData._klasses"),
		nextClass:    r.Field("Klass._next_link"),
		layoutHelper: r.Field("Klass._layout_helper"),
	}
	s.layoutHelper.Width = 4
	s.lacks = r.Missing
	return s
}

// LayoutHelper is the field of a class that is positive, in 32 bits, if it has instances and is no
// array.
func (p *Heap) LayoutHelper() vmstructs.Field { return p.classList.layoutHelper }

// CanListClasses is an error if the VM does not export its classes.
func (p *Heap) CanListClasses() error { return (&vmstructs.Resolver{Missing: p.classList.lacks}).Err() }

// ListClasses follows the lists of all loaders side by side: each step of all of them is one batch.
func (p *Heap) ListClasses() ([]uint64, error) {
	s := &p.classList
	head, err := p.Memory.Word(s.head)
	if err != nil {
		return nil, err
	}
	var heads []uint64 // heads of the loaders' lists
	seen := map[uint64]bool{}
	for loader := head; loader != 0; {
		if len(seen) == maxLoaders || seen[loader] {
			return nil, fmt.Errorf("a list of more than %d class loaders: %w", len(seen), vmruntime.ErrMalformed)
		}
		seen[loader] = true
		var b vmstructs.Batch
		b.Add(s.first.At(loader), vmstructs.WordSize)
		b.Add(s.next.At(loader), vmstructs.WordSize)
		if err := b.Read(p.Memory.Mem); err != nil {
			return nil, err
		}
		first, ok1 := b.Word(0)
		next, ok2 := b.Word(1)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("class loader at %#x: %w", loader, vmruntime.ErrMalformed)
		}
		heads = append(heads, first)
		loader = next
	}
	var classes []uint64
	clear(seen)
	for at := vmstructs.Distinct(heads); len(at) > 0; {
		for _, c := range at {
			if len(classes) == maxClasses || seen[c] {
				return nil, fmt.Errorf("a list of more than %d classes: %w", len(classes), vmruntime.ErrMalformed)
			}
			seen[c] = true
			classes = append(classes, c)
		}
		var b vmstructs.Batch
		for _, c := range at {
			b.Add(s.nextClass.At(c), vmstructs.WordSize)
		}
		if err := b.Read(p.Memory.Mem); err != nil {
			return nil, err
		}
		next := at[:0]
		for i := range at {
			if c, ok := b.Word(i); ok && c != 0 {
				next = append(next, c)
			}
		}
		at = next
	}
	return classes, nil
}

// FindClasses finds loaded classes by their names in the VM's form: 0 where there is none.
func (p *Heap) FindClasses(names ...string) ([]uint64, error) {
	if err := p.CanListClasses(); err != nil {
		return nil, err
	}
	classes, err := p.ListClasses()
	if err != nil {
		return nil, err
	}
	heads, err := p.readHeads(classes)
	if err != nil {
		return nil, err
	}
	found := make([]uint64, len(names))
	for addr, head := range heads {
		if i := slices.Index(names, head.symbol); i >= 0 {
			found[i] = addr
		}
	}
	return found, nil
}

// maxWellKnown is how many of the classes are read that the VM itself knows. JDK 25 has 120.
const maxWellKnown = 256

// WellKnown finds classes by their names among those that the VM itself knows, vmClasses::_klasses.
// It is not exported how many there are: what is behind them is no class.
func (p *Heap) WellKnown(names ...string) ([]uint64, error) {
	first := p.schema.wellKnown
	if first == 0 {
		return nil, errors.New("the VM does not export its classes")
	}
	var words vmstructs.Batch
	end := first + maxWellKnown*vmstructs.WordSize
	for at := first; at < end; at = nextPage(at) {
		words.Add(at, min(nextPage(at), end)-at)
	}
	if err := words.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	var klasses []uint64
	for i := range words.Ranges {
		b, ok := words.Bytes(i)
		for ; ok && len(b) >= vmstructs.WordSize; b = b[vmstructs.WordSize:] {
			if klass := vmstructs.Number(b[:vmstructs.WordSize]); klass != 0 && klass%vmstructs.WordSize == 0 {
				klasses = append(klasses, klass)
			}
		}
	}
	heads, err := p.readHeads(vmstructs.Distinct(klasses))
	if err != nil {
		return nil, err
	}
	found := make([]uint64, len(names))
	for i, name := range names {
		for _, klass := range klasses {
			if heads[klass].symbol == name {
				found[i] = klass
			}
		}
		if found[i] == 0 {
			return nil, fmt.Errorf("no class %s: %w", name, vmruntime.ErrMalformed)
		}
	}
	return found, nil
}
