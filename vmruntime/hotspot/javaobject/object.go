package javaobject

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// An Object is what holds an address in the heap.
type Object struct {
	Class  string // in the form of Class.Name
	Start  uint64 // address
	Size   uint64 // bytes, alignment included
	Offset uint64 // position of the address that was asked for, in bytes from Start
	// Field is the field there: the zero Field in headers, gaps and arrays. In a java.lang.Class it
	// is a static field of the class that Field.Class says.
	Field Field
	Index int // index of the array's element there, -1 if there is none
}

// ErrNoObject says that nothing was found that holds an address.
var ErrNoObject = errors.New("no object was found")

// Bounds on one search for an object.
const (
	scanBytes = 4 << 10 // back from the address
	maxBases  = 32      // candidates that are given: the registers of a thread
	firstScan = 16      // headers whose classes are read together at first; each time twice as many
)

// ObjectAt finds the object that holds an address: one read of at most 5 kB where classes are
// known, some reads of 128 bytes for each place that looks like an object of a class that is not,
// and a dozen more in ambiguous cases.
//
// It first tries objects that begin at bases: of the instruction that used the address, the
// registers, as compiled code has objects there and adds a constant (Inoue and Nakatani call that a
// shortcut). Then it looks for a header in the 4 KiB before the address: see objectSearch.
//
// The answer is good if the object has not moved since the address was seen: the caller knows
// whether there was a collection. ErrNoObject if addr is outside the heap, if the object begins
// farther away (large arrays), or if nothing is there. The stack in a jdk.internal.vm.StackChunk is
// not found.
func (p *Heap) ObjectAt(addr uint64, bases ...uint64) (*Object, error) {
	if !p.Layout.HasObjects || !p.Layout.Objects.Heap.Contains(addr) {
		return nil, fmt.Errorf("data at %#x: %w", addr, ErrNoObject)
	}
	epoch := p.CurrentEpoch()
	given, near, err := p.candidates(addr, bases)
	if err != nil {
		return nil, err
	}
	objects, err := p.objectsOf(given, epoch)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.holds(addr) {
			return p.describeObject(o, addr, epoch)
		}
	}
	buffers := bufferList{Heap: p}
	search := objectSearch{
		addr:           addr,
		isFree:         buffers.isFree,
		isObject:       func(start uint64) (bool, error) { return p.isObject(start, epoch) },
		mirrorPointers: p.objects.mirrorPointers,
	}
	for chunk := firstScan; len(near) > 0 && !search.over; chunk *= 2 {
		n := min(chunk, len(near))
		objects, err := p.objectsOf(near[:n], epoch)
		if err != nil {
			return nil, err
		}
		search.add(objects)
		near = near[n:]
	}
	found, err := search.result()
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("data at %#x: %w", addr, ErrNoObject)
	}
	return p.describeObject(*found, addr, epoch)
}

// isObject reports whether there is a header at start.
func (p *Heap) isObject(start uint64, epoch uint32) (bool, error) {
	l := &p.Layout.Objects
	header, err := p.Memory.Bytes(start, l.HeaderSize())
	if err != nil {
		return false, nil // the end of the heap, or of what is used of it
	}
	objects, err := p.objectsOf(l.AppendCandidate(nil, start, header), epoch)
	return len(objects) > 0, err
}

// candidates reads what may be headers: at bases, and in the window before addr, from its end to
// its start.
func (p *Heap) candidates(addr uint64, bases []uint64) (given, near []javaheap.Candidate, err error) {
	l := &p.Layout.Objects
	size, step := l.HeaderSize(), uint64(l.Alignment)
	last := addr &^ (step - 1)
	first := l.Heap.Low
	if last-first > scanBytes {
		first = last - scanBytes
	}
	var b vmstructs.Batch
	var starts []uint64
	for _, base := range bases {
		if base%step == 0 && base <= addr && l.Heap.Contains(base) && len(starts) < maxBases {
			starts = append(starts, base)
			b.Add(base, size)
		}
	}
	pages := len(starts)
	for at := first; at < last+size; at = nextPage(at) {
		b.Add(at, min(nextPage(at), last+size)-at)
	}
	if err := b.Read(p.Memory.Mem); err != nil {
		return nil, nil, err
	}
	for i, start := range starts {
		if header, ok := b.Bytes(i); ok {
			given = l.AppendCandidate(given, start, header)
		}
	}
	var window []byte // from first on, without what is before a page that is missing
	for _, page := range b.Ranges[pages:] {
		switch {
		case page.OK:
			window = append(window, page.Buf...)
		case page.Addr > last: // the end of a header that begins before
		default:
			window, first = nil, page.Addr+uint64(len(page.Buf))
		}
	}
	for start := last; start >= first && start <= last; start -= step {
		if at := start - first; at+size <= uint64(len(window)) {
			near = l.AppendCandidate(near, start, window[at:][:size])
		}
	}
	return given, near, nil
}

// nextPage is where the page behind addr's begins.
func nextPage(addr uint64) uint64 { return addr&^(vmstructs.PageSize-1) + vmstructs.PageSize }

// objectsOf returns the candidates whose classes are classes.
func (p *Heap) objectsOf(candidates []javaheap.Candidate, epoch uint32) (objects []located, err error) {
	heads, err := p.heads(candidates, epoch)
	if err != nil {
		return nil, err
	}
	for _, c := range candidates {
		if head, ok := heads[c.Klass]; ok {
			o := located{Candidate: c, head: head, size: head.shape.Bytes(c.Length, p.Layout.Objects.Alignment)}
			if head.symbol == mirrorClass {
				o.size = max(o.size, p.mirrorBytes(c.Start))
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// heads reads which of the candidates' classes are classes. Only those are remembered: where none
// is now, one may be loaded.
func (p *Heap) heads(candidates []javaheap.Candidate, epoch uint32) (map[uint64]klassHead, error) {
	found := make(map[uint64]klassHead)
	var unknown []uint64
	for _, c := range candidates {
		if head, ok := p.objects.heads.Get(javavm.Key{Addr: c.Klass, Epoch: epoch}); ok {
			found[c.Klass] = head
		} else {
			unknown = append(unknown, c.Klass)
		}
	}
	if len(unknown) == 0 {
		return found, nil
	}
	read, err := p.readHeads(vmstructs.Distinct(unknown))
	if err != nil {
		return nil, err
	}
	if p.CurrentEpoch() != epoch {
		return nil, vmruntime.ErrStale
	}
	for klass, head := range read {
		found[klass] = head
		if p.Epoch != nil {
			p.objects.heads.Add(javavm.Key{Addr: klass, Epoch: epoch}, head)
		}
	}
	return found, nil
}

// describeObject says what is at an address in an object.
func (p *Heap) describeObject(o located, addr uint64, epoch uint32) (*Object, error) {
	offset, shape := addr-o.Start, o.head.shape
	object := &Object{Class: o.head.name, Start: o.Start, Size: o.size, Offset: offset, Index: -1}
	if shape.Array {
		if i := (offset - shape.Header) >> shape.Shift; offset >= shape.Header && i < uint64(o.Length) {
			object.Index = int(i)
		}
		return object, nil
	}
	class, err := p.Klass(o.Klass, epoch)
	if err != nil {
		return nil, err
	}
	field, ok := class.Field(offset)
	if !ok && o.head.symbol == mirrorClass {
		field = p.staticField(o.Start, offset, epoch)
	}
	object.Field = field
	return object, nil
}
