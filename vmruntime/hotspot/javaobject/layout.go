package javaobject

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// objectFlags are the command line flags that change how objects look.
var objectFlags = []string{"UseCompressedClassPointers", "UseCompressedOops", "UseCompactObjectHeaders",
	"ObjectAlignmentInBytes", "UseAdaptiveGCBoundary", "ZGenerational", "UseTLAB"}

// LayoutObjects adds what is known about objects, or says why nothing is. ErrStarting if there are
// none yet.
func (p *Heap) LayoutObjects() error {
	flags, objects, err := p.readObjectLayout()
	if err == nil {
		p.Layout.Objects, p.Layout.HasObjects = objects, true
		p.learnObjects()
		err = p.layoutHeader(flags)
	}
	if errors.Is(err, vmruntime.ErrStarting) {
		return err
	}
	if err != nil {
		p.Layout.Objects, p.Layout.HasObjects = javaheap.ObjectLayout{}, false
		p.NoteMissing(fmt.Sprintf("The object layout of this JVM is unknown (%v): "+
			"allocations, locks and page faults have no classes.", err))
		return nil
	}
	p.learnMirrors()
	return p.layoutParkBlocker()
}

// readObjectLayout reads everything but the header and ParkBlocker, for which objects must be
// known.
func (p *Heap) readObjectLayout() (flags vmstructs.FlagValues, l javaheap.ObjectLayout, err error) {
	s := &p.schema
	if len(s.lacks) > 0 {
		return nil, l, (&vmstructs.Resolver{Missing: s.lacks}).Err()
	}
	if flags, err = p.readObjectFlags(); err != nil {
		return nil, l, err
	}
	l = javaheap.ObjectLayout{
		MarkBits:              uint8(s.markBits),
		KlassName:             s.name.Offset,
		LayoutHelper:          s.layoutHelper.Offset,
		TLABStart:             s.tlabStart.Offset,
		TLABTop:               s.tlabTop.Offset,
		TLABEnd:               s.tlabEnd.Offset,
		Allocated:             s.allocated.Offset,
		HasAllocated:          s.allocated.Known,
		OSThread:              p.Layout.Thread.OSThread,
		OSThreadID:            p.Layout.Thread.OSThreadID,
		ThreadObject:          s.threadObject.Offset,
		MonitorObject:         s.monitorObject.Offset,
		MonitorOwner:          s.monitorOwner.Offset,
		MonitorObjectIsHandle: p.Version.MonitorHandles(),
	}
	l.SymbolLength, l.SymbolBody = p.Method.SymbolLayout()
	// Then old JDKs do not set the bounds, so that they are anything: let each buffer be empty.
	if _, known := flags["UseTLAB"]; known && !flags.On("UseTLAB") {
		l.TLABTop, l.TLABEnd = l.TLABStart, l.TLABStart
	}
	p.Thread.LayoutList(&l)
	if err := p.layoutReferences(flags, &l); err != nil {
		return nil, l, err
	}
	heap := javaheap.Reader{Reader: p.Memory, Heap: &s.heap, Colours: &s.colours, Flags: flags, Missing: p.NoteMissing}
	if l.Heap, err = heap.Layout(); err != nil {
		return nil, l, err
	}
	if l.Heap.Collector != javaheap.CollectorZ {
		return flags, l, nil
	}
	if heap.GenerationalZ() {
		l.LayoutColours(p.Build.Machine)
	}
	if l.BadColours, err = heap.BadColours(); err != nil {
		return nil, l, err
	}
	l.Forwarding, err = heap.Forwarding(l.Heap.Low)
	return flags, l, err
}

// readObjectFlags reads the flags of objects and collectors.
func (p *Heap) readObjectFlags() (vmstructs.FlagValues, error) {
	names := objectFlags
	for _, f := range javaheap.CollectorFlags {
		names = append(names[:len(names):len(names)], f.Name)
	}
	addrs, err := vmstructs.FindFlags(p.Memory, &p.Flags, names...)
	if err != nil {
		return nil, err
	}
	var b vmstructs.Batch
	var found []string
	for name, addr := range addrs {
		b.Add(addr, vmstructs.WordSize)
		found = append(found, name)
	}
	if err := b.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	values := make(vmstructs.FlagValues)
	for i, name := range found {
		if value, ok := b.Word(i); ok {
			values[name] = value
		}
	}
	return values, nil
}

// layoutReferences says how objects are aligned and how they refer to others.
func (p *Heap) layoutReferences(flags vmstructs.FlagValues, l *javaheap.ObjectLayout) (err error) {
	const defaultAlignment, maxAlignment = 8, 256 // default and bound of ObjectAlignmentInBytes
	l.Alignment = uint32(flags["ObjectAlignmentInBytes"])
	if l.Alignment == 0 {
		l.Alignment = defaultAlignment
	}
	if bits.OnesCount32(l.Alignment) != 1 || l.Alignment < vmstructs.WordSize || l.Alignment > maxAlignment {
		return fmt.Errorf("objects at multiples of %d bytes: %w", l.Alignment, vmruntime.ErrMalformed)
	}
	if l.OopIsNarrow = flags.On("UseCompressedOops"); l.OopIsNarrow {
		l.OopBase, l.OopShift, err = p.narrowing(p.schema.oopBase, p.schema.oopShift)
	}
	return err
}

// narrowing reads the base and the shift of 32-bit pointers.
func (p *Heap) narrowing(baseAt, shiftAt uint64) (base uint64, shift uint8, err error) {
	const maxShift = 10 // shift for classes with compact headers; for objects it is log2 of their alignment
	if base, err = p.Memory.Word(baseAt); err != nil {
		return 0, 0, err
	}
	b, err := p.Memory.Bytes(shiftAt, 4)
	if err != nil {
		return 0, 0, err
	}
	if n := vmstructs.Number(b); n <= maxShift {
		return base, uint8(n), nil
	}
	return 0, 0, fmt.Errorf("narrow pointers that are shifted by %d bits: %w", vmstructs.Number(b),
		vmruntime.ErrMalformed)
}

// layoutParkBlocker finds a field of java.lang.Thread, through the object of any thread.
// ErrStarting if no thread has one yet.
func (p *Heap) layoutParkBlocker() error {
	const attempts = 3 // threads come and go, objects move
	var offset uint32
	var err error
	for range attempts {
		if offset, err = p.findParkBlocker(); err == nil || errors.Is(err, vmruntime.ErrStarting) {
			break
		}
	}
	if errors.Is(err, vmruntime.ErrStarting) {
		return err
	}
	if err != nil {
		p.NoteMissing(fmt.Sprintf("Thread.parkBlocker was not found (%v): "+
			"waits in java.util.concurrent have no classes.", err))
		return nil
	}
	p.Layout.Objects.ParkBlocker, p.Layout.Objects.HasParkBlocker = offset, true
	return nil
}

func (p *Heap) findParkBlocker() (offset uint32, err error) {
	objects, err := p.threadObjects()
	if err != nil {
		return 0, err
	}
	for _, object := range objects {
		if offset, err = p.parkBlockerOf(object); err == nil {
			return offset, nil
		}
	}
	return 0, err
}

// Handle reads the object that a handle leads to.
func (p *Heap) Handle(addr uint64) (uint64, error) {
	reference, err := p.Memory.Word(addr)
	return p.Layout.Objects.Uncolour(reference), err
}

// parkBlockerOf finds the field in the class of a thread's object, or the one of its superclasses
// that is java.lang.Thread.
func (p *Heap) parkBlockerOf(object uint64) (uint32, error) {
	header, err := p.Memory.Bytes(object, p.Layout.Objects.HeaderSize())
	if err != nil {
		return 0, err
	}
	class, err := p.Klass(p.Layout.Objects.ClassOf(header), p.CurrentEpoch())
	if err != nil {
		return 0, err
	}
	for _, f := range class.fields {
		if f.Class == "java.lang.Thread" && f.Name == "parkBlocker" {
			return f.Offset, nil
		}
	}
	return 0, fmt.Errorf("%s has no such field", class.Name)
}
