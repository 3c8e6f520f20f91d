package hotspot

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// maxThreadName bounds what is read of a thread's name, in bytes of its characters.
const maxThreadName = 512

// ThreadNames returns the names of Java threads, as Thread.getName does, by their id as in Threads;
// threads of the VM that have a java.lang.Thread are among them. It costs seven reads of some bytes
// for each thread, in batches. The VM may move objects meanwhile: then names are missing. One that
// is wrong would be that of another thread or string that was there a moment ago.
func (p *Process) ThreadNames() (map[uint32]string, error) {
	if !p.layout.HasObjects {
		return nil, errors.New("names of threads: objects of this JVM are not known")
	}
	if s := &p.schema.thread; !s.osThread.Known || !s.osThreadID.Known {
		return nil, errors.New("names of threads: the VM does not export their ids")
	}
	l, t, epoch := &p.layout.Objects, &p.layout.Thread, p.currentEpoch()
	addrs, err := p.threads(vmruntime.MaxListedThreads)
	if err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	var words []uint64
	for _, addr := range addrs {
		words = append(words, addr+uint64(l.ThreadObject), addr+uint64(t.OSThread))
	}
	if words, err = p.words(words, vmstructs.WordSize); err != nil {
		return nil, fmt.Errorf("threads: %w", err)
	}
	objects, systems := make([]uint64, len(addrs)), make([]uint64, len(addrs))
	for i := range addrs {
		objects[i] = words[2*i]
		if words[2*i+1] != 0 {
			systems[i] = words[2*i+1] + uint64(t.OSThreadID)
		}
	}
	ids, err := p.words(systems, 4)
	if err != nil {
		return nil, fmt.Errorf("ids of threads: %w", err)
	}
	if l.ThreadObjectIsHandle {
		if objects, err = p.words(objects, vmstructs.WordSize); err != nil {
			return nil, fmt.Errorf("objects of threads: %w", err)
		}
	}
	for i := range objects {
		objects[i] = l.Uncolour(objects[i])
	}
	referents, err := p.follow(objects, epoch, func(f Field) bool {
		return f.Class == "java.lang.Thread" && f.Name == "name" && f.Type == "java.lang.String"
	})
	if err != nil {
		return nil, fmt.Errorf("names of threads: %w", err)
	}
	texts, err := p.stringsAt(referents, epoch)
	if err != nil {
		return nil, fmt.Errorf("names of threads: %w", err)
	}
	names := make(map[uint32]string, len(ids))
	for i, id := range ids {
		if id != 0 && texts[i] != "" {
			names[uint32(id)] = texts[i]
		}
	}
	return names, nil
}

// words reads a number of so many bytes at each address: 0 where there is none.
func (p *Process) words(addrs []uint64, size uint64) ([]uint64, error) {
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
func (p *Process) classes(objects []uint64, epoch uint32) ([]*Class, error) {
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
func (p *Process) follow(objects []uint64, epoch uint32, wanted func(Field) bool) ([]uint64, error) {
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
func (p *Process) references(addrs []uint64) ([]uint64, error) {
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

// stringsAt reads objects that are java.lang.Strings: "" where there is none.
func (p *Process) stringsAt(objects []uint64, epoch uint32) ([]string, error) {
	const class = "java.lang.String"
	l := &p.layout.Objects
	arrays, err := p.follow(objects, epoch, func(f Field) bool {
		return f.Class == class && f.Name == "value" && (f.Type == "byte[]" || f.Type == "char[]")
	})
	if err != nil {
		return nil, err
	}
	classes, err := p.classes(arrays, epoch)
	if err != nil {
		return nil, err
	}
	// How many elements the arrays have, and, where they are bytes, the strings' coders.
	lengths := make([]uint64, len(objects))
	owners, err := p.classes(objects, epoch)
	if err != nil {
		return nil, err
	}
	coders := fieldsOf(objects, owners, func(f Field) bool { return f.Class == class && f.Name == "coder" })
	for i, array := range arrays {
		if classes[i] == nil || owners[i] == nil || array == 0 {
			coders[i] = 0
			continue
		}
		lengths[i] = array + uint64(l.ArrayLength)
	}
	if lengths, err = p.words(lengths, 4); err != nil {
		return nil, err
	}
	if coders, err = p.words(coders, 1); err != nil {
		return nil, err
	}
	var b vmstructs.Batch
	for i, array := range arrays {
		c := classes[i]
		if c == nil || !c.shape.Array || c.Name != "byte[]" && c.Name != "char[]" {
			array, lengths[i] = 0, 0
			b.Add(array, 0)
			continue
		}
		b.Add(array+c.shape.Header, min(lengths[i]<<c.shape.Shift, maxThreadName))
	}
	if err := b.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	texts := make([]string, len(objects))
	for i := range objects {
		if text, ok := b.Bytes(i); ok {
			texts[i] = javaText(text, classes[i].Name == "char[]" || coders[i] == 1)
		}
	}
	return texts, nil
}

// javaText decodes the characters of a string: UTF-16 if they are wide, else Latin-1.
func javaText(text []byte, wide bool) string {
	if wide {
		units := make([]uint16, len(text)/2)
		for i := range units {
			units[i] = uint16(text[2*i]) | uint16(text[2*i+1])<<8
		}
		return vmstructs.CleanText([]byte(string(utf16.Decode(units))))
	}
	var b strings.Builder
	for _, c := range text {
		b.WriteRune(rune(c))
	}
	return vmstructs.CleanText([]byte(b.String()))
}
