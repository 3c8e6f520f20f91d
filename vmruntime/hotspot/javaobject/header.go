package javaobject

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A headerForm is one way in which objects may say of which class they are
// (src/hotspot/share/oops/oop.hpp).
type headerForm struct {
	name        string
	klass       uint32 // as in ObjectLayout, as are the next ones
	narrow      bool
	inMark      bool
	bit         uint8
	arrayLength uint32
}

// What is taken where the VM does not export it, once objects have shown that it is so.
const (
	usualNarrowKlass = 8  // bytes from the start of an object, behind its mark word
	usualKlassBit    = 42 // first bit of the class in the mark word, whose upper 22 bits it is
)

// headerForms are the forms that the VM's flags and exports leave, the likeliest first. Later JDKs
// have fewer of the flags: see the table in hotspot/jdks.go.
func (s *objectSchema) headerForms(flags vmstructs.FlagValues) []headerForm {
	const narrowBytes, markBytes = 4, 8
	narrow := headerForm{name: "32 bits behind the mark word", klass: usualNarrowKlass, narrow: true}
	if s.narrowKlass.Known {
		narrow.klass = s.narrowKlass.Offset
	}
	narrow.arrayLength = narrow.klass + narrowBytes
	compact := headerForm{name: "upper bits of the mark word", inMark: true, bit: usualKlassBit, arrayLength: markBytes}
	if s.markKlassBit != 0 {
		compact.bit = uint8(s.markKlassBit)
	}
	wide := headerForm{name: "a pointer", klass: s.klass.Offset, arrayLength: s.klass.Offset + vmstructs.WordSize}

	_, canBeWide := flags["UseCompressedClassPointers"]
	_, canBeCompact := flags["UseCompactObjectHeaders"]
	switch {
	case flags.On("UseCompactObjectHeaders"):
		return []headerForm{compact}
	case flags.On("UseCompressedClassPointers"):
		return []headerForm{narrow}
	case canBeWide && s.klass.Known:
		return []headerForm{wide}
	case canBeWide:
		return nil
	case canBeCompact:
		return []headerForm{narrow}
	}
	return []headerForm{narrow, compact}
}

// errNoEvidence says that no object was found that shows what headers are like.
var errNoEvidence = errors.New("no thread's object can be read")

// layoutHeader says what is in an object's header: the first form by which the object of a thread
// is a thread. Where the VM leaves one form only, and nothing can be seen that is against it, it is
// that. ErrStarting if no thread has an object yet.
func (p *Heap) layoutHeader(flags vmstructs.FlagValues) error {
	s, l := &p.schema, &p.Layout.Objects
	forms := s.headerForms(flags)
	if len(forms) == 0 {
		return errors.New("the VM does not export where an object has its class")
	}
	base, shift, narrowErr := p.narrowing(s.klassBase, s.klassShift)
	var last error
	for _, form := range forms {
		l.Klass, l.KlassIsNarrow, l.KlassInMark = form.klass, form.narrow, form.inMark
		l.KlassBit, l.ArrayLength = form.bit, form.arrayLength
		l.KlassBase, l.KlassShift = 0, 0
		if form.narrow || form.inMark {
			if narrowErr != nil {
				return narrowErr
			}
			l.KlassBase, l.KlassShift = base, shift
		}
		err := p.checkHeader()
		if err == nil || errors.Is(err, vmruntime.ErrStarting) {
			return err
		}
		if len(forms) == 1 && errors.Is(err, errNoEvidence) {
			return nil
		}
		last = fmt.Errorf("class as %s: %w", form.name, err)
	}
	return last
}

// threadClass is a class that every thread's object is of, or of a subclass.
const threadClass = "java/lang/Thread"

// checkHeader reads the classes of threads' objects: one of them must be a thread. errNoEvidence if
// none can be read.
func (p *Heap) checkHeader() error {
	const attempts = 3 // threads come and go, objects move
	against := errNoEvidence
	for range attempts {
		objects, err := p.threadObjects()
		if errors.Is(err, vmruntime.ErrStarting) {
			return err
		}
		if err != nil && errors.Is(against, errNoEvidence) { // no list of threads, or the JVM freed it during the read
			against = fmt.Errorf("%w: %w", errNoEvidence, err)
		}
		for _, object := range objects {
			switch err := p.checkThread(object); {
			case err == nil:
				return nil
			case !errors.Is(err, errNoEvidence):
				against = err
			}
		}
	}
	return against
}

// checkThread is an error unless an object is a thread.
func (p *Heap) checkThread(object uint64) error {
	header, err := p.Memory.Bytes(object, p.Layout.Objects.HeaderSize())
	if err != nil {
		return fmt.Errorf("%w: %w", errNoEvidence, err)
	}
	klass := p.Layout.Objects.ClassOf(header)
	if klass == 0 { // memory that a collector has given up
		return errNoEvidence
	}
	for at, n := klass, 0; at != 0 && n < maxAbove; n++ {
		heads, err := p.readHeads([]uint64{at})
		if err != nil {
			return err
		}
		head, ok := heads[at]
		switch {
		// up to JDK 11, nothing says where vtables of the archive (CDS) are
		case !ok && p.objects.vtables[1] == [2]uint64{}:
			return errNoEvidence
		case !ok:
			return fmt.Errorf("a thread's object leads to %#x, where no class is: %w", klass, vmruntime.ErrMalformed)
		case head.symbol == threadClass:
			return nil
		}
		at = head.super
	}
	return fmt.Errorf("a thread's object leads to a class at %#x that is no thread: %w", klass, vmruntime.ErrMalformed)
}

// maxThreads bounds how many threads are asked for their objects: any one will do.
const maxThreads = 64

// threadObjects returns the objects of some threads, and notes whether threads have handles of
// them. ErrStarting if there is none yet.
func (p *Heap) threadObjects() (found []uint64, err error) {
	l := &p.Layout.Objects
	threads, err := p.ThreadAddresses(maxThreads)
	if err != nil {
		return nil, err
	}
	var objects vmstructs.Batch
	for _, thread := range threads {
		objects.Add(thread+uint64(l.ThreadObject), vmstructs.WordSize)
	}
	if err := objects.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	for i := range threads {
		object, ok := objects.Word(i)
		if !ok || object == 0 {
			continue
		}
		if l.ThreadObjectIsHandle = !l.Heap.Contains(object); l.ThreadObjectIsHandle {
			if object, err = p.Handle(object); err != nil || object == 0 {
				continue
			}
		}
		found = append(found, object)
	}
	if len(found) == 0 {
		return nil, vmruntime.ErrStarting
	}
	return found, nil
}
