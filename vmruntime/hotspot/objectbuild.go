package hotspot

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// objectFlags are the command line flags that change how objects look.
var objectFlags = []string{"UseCompressedClassPointers", "UseCompressedOops", "UseCompactObjectHeaders",
	"ObjectAlignmentInBytes", "UseAdaptiveGCBoundary", "ZGenerational"}

// flagValues are command line flags by name, as the eight bytes at each: a bool has one of them. Those that the VM
// does not have are absent.
type flagValues map[string]uint64

func (v flagValues) on(name string) bool { return v[name]&0xff != 0 }

// layoutObjects adds what is known about objects, or says why nothing is. ErrStarting if there are none yet.
func (p *Process) layoutObjects() error {
	objects, err := p.readObjectLayout()
	if errors.Is(err, vmruntime.ErrStarting) {
		return err
	}
	if err != nil {
		p.missing(fmt.Sprintf("Objects of this JVM are not known (%v): "+
			"allocations, locks and addresses of data cannot be told by class.", err))
		return nil
	}
	p.layout.Objects, p.layout.HasObjects = objects, true
	p.learnObjects()
	return p.layoutParkBlocker()
}

// readObjectLayout reads everything but ParkBlocker, for which objects must be known.
func (p *Process) readObjectLayout() (l ObjectLayout, err error) {
	s := &p.schema.object
	if len(s.lacks) > 0 {
		return l, (&resolver{missing: s.lacks}).err()
	}
	flags, err := p.readObjectFlags()
	if err != nil {
		return l, err
	}
	l = ObjectLayout{
		MarkBits:              uint8(s.markBits),
		KlassName:             s.name.offset,
		LayoutHelper:          s.layoutHelper.offset,
		SymbolLength:          p.schema.method.symbolLength.offset + uint32(p.schema.method.symbolLengthShift/8),
		SymbolBody:            p.schema.method.symbolBody.offset,
		TLABStart:             s.tlabStart.offset,
		TLABTop:               s.tlabTop.offset,
		TLABEnd:               s.tlabEnd.offset,
		ThreadObject:          s.threadObject.offset,
		MonitorObject:         s.monitorObject.offset,
		MonitorObjectIsHandle: p.version.monitorHandles(),
	}
	if err := p.layoutHeader(flags, &l); err != nil {
		return l, err
	}
	heap := heapReader{p.target, s, flags, p.missing}
	if l.Heap, err = heap.layout(); err != nil {
		return l, err
	}
	if l.Heap.Collector == CollectorZ && heap.generationalZ() {
		l.layoutColours(p.image.machine)
	}
	return l, nil
}

// readObjectFlags reads the flags of objects and collectors.
func (p *Process) readObjectFlags() (flagValues, error) {
	names := objectFlags
	for _, f := range collectorFlags {
		names = append(names[:len(names):len(names)], f.name)
	}
	addrs, err := findFlags(p.target, &p.schema.flags, names...)
	if err != nil {
		return nil, err
	}
	var b batch
	var found []string
	for name, addr := range addrs {
		b.add(addr, wordSize)
		found = append(found, name)
	}
	if err := b.read(p.mem); err != nil {
		return nil, err
	}
	values := make(flagValues)
	for i, name := range found {
		if value, ok := b.word(i); ok {
			values[name] = value
		}
	}
	return values, nil
}

// layoutHeader says what is in an object's header (src/hotspot/share/oops/oop.hpp).
func (p *Process) layoutHeader(flags flagValues, l *ObjectLayout) (err error) {
	s := &p.schema.object
	const defaultAlignment, maxAlignment = 8, 256 // of ObjectAlignmentInBytes
	l.Alignment = uint32(flags["ObjectAlignmentInBytes"])
	if l.Alignment == 0 {
		l.Alignment = defaultAlignment
	}
	if bits.OnesCount32(l.Alignment) != 1 || l.Alignment < wordSize || l.Alignment > maxAlignment {
		return fmt.Errorf("objects at multiples of %d bytes: %w", l.Alignment, vmruntime.ErrMalformed)
	}
	const narrow, markSize = 4, 8 // bytes
	_, canBeWide := flags["UseCompressedClassPointers"]
	switch {
	case flags.on("UseCompactObjectHeaders"):
		if s.markKlassBit == 0 {
			return errors.New("the VM does not export where compact headers have the class")
		}
		l.KlassInMark, l.KlassBit, l.ArrayLength = true, uint8(s.markKlassBit), markSize
	case flags.on("UseCompressedClassPointers"), !canBeWide: // the flag is to go when there is nothing else any more
		l.Klass, l.KlassIsNarrow, l.ArrayLength = s.narrowKlass.offset, true, s.narrowKlass.offset+narrow
	default:
		l.Klass, l.ArrayLength = s.klass.offset, s.klass.offset+wordSize
	}
	l.OopIsNarrow = flags.on("UseCompressedOops")
	if l.KlassIsNarrow || l.KlassInMark {
		if l.KlassBase, l.KlassShift, err = p.narrowing(s.klassBase, s.klassShift); err != nil {
			return err
		}
	}
	if l.OopIsNarrow {
		l.OopBase, l.OopShift, err = p.narrowing(s.oopBase, s.oopShift)
	}
	return err
}

// narrowing reads the base and the shift of 32-bit pointers.
func (p *Process) narrowing(baseAt, shiftAt uint64) (base uint64, shift uint8, err error) {
	const maxShift = 10 // of classes with compact headers; of objects log2 of their alignment
	if base, err = p.word(baseAt); err != nil {
		return 0, 0, err
	}
	b, err := p.bytes(shiftAt, 4)
	if err != nil {
		return 0, 0, err
	}
	if n := number(b); n <= maxShift {
		return base, uint8(n), nil
	}
	return 0, 0, fmt.Errorf("narrow pointers that are shifted by %d bits: %w", number(b), vmruntime.ErrMalformed)
}
