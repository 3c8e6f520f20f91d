package javaobject

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// headBytes is how much memory a heap keeps of what it knows to be a class.
const headBytes = 1 << 20

// mirrorClass is the class whose objects, one for each class, hold the static fields of that class.
const mirrorClass = "java/lang/Class"

// An objectTable is what a heap remembers of classes of objects, and where they may be.
type objectTable struct {
	classes *javavm.Cache[javavm.Key, *Class]
	heads   *javavm.Cache[javavm.Key, klassHead]
	object  uint64       // the class that has no superclass, 0 if unknown
	vtables [2][2]uint64 // bounds of where vtables are: libjvm, and the CDS archives

	// Offsets in a java.lang.Class: 64 bits, its class; 32 bits, its size in words. 0 if unknown.
	mirrorKlass, mirrorSize uint64
	mirrorPointers          []uint64 // see objectSearch

	tlabReserve uint64 // bytes behind the end of a thread's buffer that are its own, too
}

func newObjectTable() objectTable {
	return objectTable{
		classes: javavm.NewCache[javavm.Key, *Class](classBytes),
		heads:   javavm.NewCache[javavm.Key, klassHead](headBytes),
	}
}

// isVtable reports whether a vtable may be at addr.
func (t *objectTable) isVtable(addr uint64) bool {
	for _, bounds := range t.vtables {
		if addr >= bounds[0] && addr < bounds[1] {
			return addr%vmstructs.WordSize == 0
		}
	}
	return false
}

// archiveBounds is where the VM keeps the bounds of the archive of classes, 0 if that is not known.
func (p *Heap) archiveBounds() (low, high uint64) {
	if s := &p.schema; s.archiveLow != 0 {
		return s.archiveLow, s.archiveHigh
	}
	low, hasLow := p.Symbol(javavm.SymbolArchiveLow)
	high, hasHigh := p.Symbol(javavm.SymbolArchiveHigh)
	if !hasLow || !hasHigh {
		return 0, 0
	}
	return low, high
}

// learnObjects reads what is different in every process. What cannot be read stays unknown.
func (p *Heap) learnObjects() {
	s := &p.schema
	t := &p.objects
	t.vtables[0] = p.LibraryBounds()
	if lowAt, highAt := p.archiveBounds(); lowAt != 0 && highAt != 0 {
		low, err1 := p.Memory.Word(lowAt)
		high, err2 := p.Memory.Word(highAt)
		if err1 == nil && err2 == nil {
			t.vtables[1] = [2]uint64{low, high}
		}
	}
	// ThreadLocalAllocBuffer::end_reserve: room for what allocations prefetch, or for the object
	// that fills up the rest.
	const smallestFiller = 2
	t.tlabReserve = vmstructs.WordSize * max(p.staticOffset(s.prefetchWords), smallestFiller)
}

// learnMirrors reads where a java.lang.Class has what it says of its class. What an object's header
// is like is known.
func (p *Heap) learnMirrors() {
	s := &p.schema
	t := &p.objects
	t.mirrorKlass, t.mirrorSize = p.staticOffset(s.mirrorKlass), p.staticOffset(s.mirrorSize)
	for _, at := range []uint64{t.mirrorKlass, p.staticOffset(s.mirrorArray)} {
		if klass := uint64(p.Layout.Objects.Klass); at > klass {
			t.mirrorPointers = append(t.mirrorPointers, at-klass)
		}
	}
}

// staticOffset is a number of 32 bits in a static variable, 0 if there is none.
func (p *Heap) staticOffset(static uint64) uint64 {
	if static == 0 {
		return 0
	}
	b, err := p.Memory.Bytes(static, 4)
	if err != nil || vmstructs.Number(b) > vmstructs.MaxOffset {
		return 0
	}
	return vmstructs.Number(b)
}

// mirrorBytes is the size of the java.lang.Class at start: as much as it says, for it has static
// fields behind its own.
func (p *Heap) mirrorBytes(start uint64) uint64 {
	if p.objects.mirrorSize == 0 {
		return 0
	}
	b, err := p.Memory.Bytes(start+p.objects.mirrorSize, 4)
	if err != nil {
		return 0
	}
	const most = scanBytes + 512<<10 // 65,535 fields of eight bytes
	return min(vmstructs.WordSize*vmstructs.Number(b), most)
}

// staticField is the field at an offset in the java.lang.Class at start; zero if that is not known.
func (p *Heap) staticField(start, offset uint64, epoch uint32) Field {
	if p.objects.mirrorKlass == 0 {
		return Field{}
	}
	klass, err := p.Memory.Word(start + p.objects.mirrorKlass)
	if err != nil || klass == 0 { // that of a primitive type
		return Field{}
	}
	class, err := p.Klass(klass, epoch)
	if err != nil {
		return Field{}
	}
	field, _ := fieldAt(class.statics, offset)
	return field
}

// A klassHead is what shows that a Klass is one, and how large its objects are.
type klassHead struct {
	addr, super uint64
	vtable      uint64 // what its first word points to
	symbol      string // the name in the VM's form, cleaned
	name        string // for people
	shape       javaheap.Shape
}

// Bytes is about how much memory h holds.
func (h klassHead) Bytes() int { return 144 + len(h.symbol) + len(h.name) }

// readHeads reads classes. What does not look like one is absent: its vtable must be in libjvm, or
// in the archive of classes that JVMs share (CDS), where the VM puts copies of its vtables; its
// superclasses must begin with Object; and it must point to itself where it says, which is what
// casts check. Methods and constant pools have vtables, too.
func (p *Heap) readHeads(klasses []uint64) (map[uint64]klassHead, error) {
	s := &p.schema
	var heads vmstructs.Batch
	for _, klass := range klasses {
		heads.Add(klass, s.headSize())
	}
	if err := heads.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	found := make(map[uint64]klassHead)
	symbols := make(map[uint64]uint64)
	var addrs []uint64
	for i, klass := range klasses {
		head, ok := heads.Bytes(i)
		if !ok || klass%vmstructs.WordSize != 0 {
			continue
		}
		h := klassHead{addr: klass, super: s.super.Read(head), vtable: vmstructs.Number(head[:vmstructs.WordSize])}
		h.shape, ok = javaheap.NewShape(int32(s.layoutHelper.Read(head)))
		if !ok || !p.objects.isVtable(h.vtable) || !p.hasSupers(klass, head) {
			continue
		}
		symbols[klass] = s.name.Read(head)
		addrs = append(addrs, symbols[klass])
		found[klass] = h
	}
	names, err := p.MethodReader().Symbols(addrs)
	if err != nil {
		return nil, err
	}
	for klass, h := range found {
		if h.symbol = names[symbols[klass]]; !sane(h.symbol) || strings.HasPrefix(h.symbol, "[") != h.shape.Array {
			delete(found, klass)
			continue
		}
		h.name = methodinfo.ObjectClass(h.symbol)
		found[klass] = h
	}
	return found, nil
}

// hasSupers reports whether what a class has of its superclasses, down to itself, fits. Interfaces,
// and classes that have too many, are not among them (src/hotspot/share/oops/klass.hpp,
// Klass::initialize_supers).
func (p *Heap) hasSupers(klass uint64, head []byte) bool {
	s := &p.schema
	supers := head[s.primary.Offset:s.primary.End()]
	if first := vmstructs.Number(supers[:vmstructs.WordSize]); first == 0 || p.objects.object != 0 &&
		first != p.objects.object {
		return false
	}
	check := s.superCheck.Read(head)
	if check == uint64(s.secondary.Offset) {
		return true
	}
	at := check - uint64(s.primary.Offset)
	return at%vmstructs.WordSize == 0 && at < uint64(len(supers)) &&
		vmstructs.Number(supers[at:at+vmstructs.WordSize]) == klass
}

// sane reports whether a name that was cleaned had nothing that a class name never has.
func sane(name string) bool { return name != "" && !strings.ContainsRune(name, '\ufffd') }
