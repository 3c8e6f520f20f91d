package javaobject

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Words reads a number of so many bytes at each address: 0 where there is none.
func (p *Heap) Words(addrs []uint64, size uint64) ([]uint64, error) {
	var b vmstructs.Batch
	for _, addr := range addrs {
		b.Add(addr, size)
	}
	if err := b.Read(p.Memory.Mem); err != nil {
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

// Classes reads the classes of objects: nil where there is no object.
func (p *Heap) Classes(objects []uint64, epoch uint32) ([]*Class, error) {
	l := &p.Layout.Objects
	var b vmstructs.Batch
	for _, object := range objects {
		if !l.Heap.Contains(object) {
			object = 0
		}
		b.Add(object, l.HeaderSize())
	}
	if err := b.Read(p.Memory.Mem); err != nil {
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

// Follow reads the reference in the field of each object that is wanted: 0 where there is none.
func (p *Heap) Follow(objects []uint64, epoch uint32, wanted func(Field) bool) ([]uint64, error) {
	classes, err := p.Classes(objects, epoch)
	if err != nil {
		return nil, err
	}
	return p.References(FieldsOf(objects, classes, wanted))
}

// FieldsOf returns where the field of each object is that is wanted: 0 where there is none. It
// looks through each class once, as a class may have very many fields.
func FieldsOf(objects []uint64, classes []*Class, wanted func(Field) bool) []uint64 {
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

// References reads the references at these addresses.
func (p *Heap) References(addrs []uint64) ([]uint64, error) {
	l := &p.Layout.Objects
	size := uint64(vmstructs.WordSize)
	if l.OopIsNarrow {
		size = 4
	}
	objects, err := p.Words(addrs, size)
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

// Referent is the object that a reference refers to; a narrow one is in the lower half of the word.
func (p *Heap) Referent(word uint64) uint64 {
	l := &p.Layout.Objects
	if !l.OopIsNarrow {
		return l.Uncolour(word)
	}
	if word = uint64(uint32(word)); word == 0 {
		return 0
	}
	return l.OopBase + word<<l.OopShift
}

// ReferencesIn reads an array of references, of most of them or fewer.
func (p *Heap) ReferencesIn(array, most uint64, epoch uint32) ([]uint64, error) {
	l := &p.Layout.Objects
	length, err := p.Words([]uint64{array + uint64(l.ArrayLength)}, 4)
	if err != nil {
		return nil, err
	}
	classes, err := p.Classes([]uint64{array}, epoch)
	if err != nil {
		return nil, err
	}
	if classes[0] == nil || !classes[0].shape.Array || length[0] > most {
		return nil, fmt.Errorf("an array of %d references: %w", length[0], vmruntime.ErrMalformed)
	}
	size := uint64(vmstructs.WordSize)
	if l.OopIsNarrow {
		size = 4
	}
	table, err := p.Memory.Bytes(array+classes[0].shape.Header, length[0]*size)
	if err != nil {
		return nil, err
	}
	var objects []uint64
	for ; uint64(len(table)) >= size; table = table[size:] {
		objects = append(objects, p.Referent(vmstructs.Number(table[:size])))
	}
	return objects, nil
}

// StaticPlace returns the handle of a class's java.lang.Class, and the offset of a static field in
// it.
func (p *Heap) StaticPlace(klass uint64, name string, epoch uint32) (handle, offset uint64, err error) {
	if !p.schema.mirror.Known {
		return 0, 0, errors.New("the VM does not export its classes' objects")
	}
	class, err := p.Klass(klass, epoch)
	if err != nil {
		return 0, 0, err
	}
	for _, f := range class.statics {
		if f.Name == name {
			handle, err = p.Memory.Word(p.schema.mirror.At(klass))
			return handle, uint64(f.Offset), err
		}
	}
	return 0, 0, fmt.Errorf("%s has no field %s", class.Name, name)
}
