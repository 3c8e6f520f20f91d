package hotspot

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// words reads a number of so many bytes at each address: 0 where there is none.
func (p *heap) words(addrs []uint64, size uint64) ([]uint64, error) {
	var b vmstructs.Batch
	for _, addr := range addrs {
		b.Add(addr, size)
	}
	if err := b.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	words := make([]uint64, len(addrs))
	for i := range addrs {
		if word, ok := b.Word(i); ok {
			words[i] = word
		}
	}
	return words, nil
}

// classes reads the classes of objects: nil where there is no object.
func (p *heap) classes(objects []uint64, epoch uint32) ([]*Class, error) {
	l := &p.layout.Objects
	var b vmstructs.Batch
	for _, object := range objects {
		if !l.Heap.Contains(object) {
			object = 0
		}
		b.Add(object, l.HeaderSize())
	}
	if err := b.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	classes, known := make([]*Class, len(objects)), make(map[uint64]*Class)
	for i := range objects {
		header, ok := b.Bytes(i)
		if !ok {
			continue
		}
		addr := l.ClassOf(header)
		class, seen := known[addr]
		if !seen && len(known) < maxThreadClasses {
			class, _ = p.Klass(addr, epoch) // nil if it is none
			known[addr] = class
		}
		classes[i] = class
	}
	return classes, nil
}

// maxThreadClasses bounds how many classes are looked at for the names of threads: subclasses of
// java.lang.Thread, and what is where a collector moved an object away. Each may take several
// reads.
const maxThreadClasses = 256

// follow reads the reference in the field of each object that is wanted: 0 where there is none.
func (p *heap) follow(objects []uint64, epoch uint32, wanted func(Field) bool) ([]uint64, error) {
	classes, err := p.classes(objects, epoch)
	if err != nil {
		return nil, err
	}
	return p.references(fieldsOf(objects, classes, wanted))
}

// fieldsOf returns where the field of each object is that is wanted: 0 where there is none. It
// looks through each class once, as a class may have very many fields.
func fieldsOf(objects []uint64, classes []*Class, wanted func(Field) bool) []uint64 {
	type place struct {
		offset uint64
		known  bool
	}
	places := make(map[*Class]place)
	fields := make([]uint64, len(objects))
	for i, class := range classes {
		if class == nil {
			continue
		}
		at, seen := places[class]
		if !seen {
			if n := slices.IndexFunc(class.fields, wanted); n >= 0 {
				at = place{uint64(class.fields[n].Offset), true}
			}
			places[class] = at
		}
		if at.known {
			fields[i] = objects[i] + at.offset
		}
	}
	return fields
}

// references reads the references at these addresses.
func (p *heap) references(addrs []uint64) ([]uint64, error) {
	l := &p.layout.Objects
	size := uint64(vmstructs.WordSize)
	if l.OopIsNarrow {
		size = 4
	}
	objects, err := p.words(addrs, size)
	if err != nil {
		return nil, err
	}
	for i, reference := range objects {
		switch {
		case reference == 0:
		case l.OopIsNarrow:
			objects[i] = l.OopBase + reference<<l.OopShift
		default:
			objects[i] = l.Uncolour(reference)
		}
	}
	return objects, nil
}

// referent is the object that a reference refers to; a narrow one is in the lower half of the word.
func (p *heap) referent(word uint64) uint64 {
	l := &p.layout.Objects
	if !l.OopIsNarrow {
		return l.Uncolour(word)
	}
	if word = uint64(uint32(word)); word == 0 {
		return 0
	}
	return l.OopBase + word<<l.OopShift
}
