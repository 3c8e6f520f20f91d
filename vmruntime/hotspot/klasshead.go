package hotspot

import "strings"

// A klassHead is what tells that a Klass is one, and how large its objects are.
type klassHead struct {
	addr, super uint64
	vtable      uint64 // what its first word points to
	symbol      string // the name in the VM's form, cleaned
	name        string // for people
	shape       shape
}

// bytes is about how much memory h holds.
func (h klassHead) bytes() int { return 144 + len(h.symbol) + len(h.name) }

// A shape is the size of a class's objects: a Klass's layout helper in the clear (src/hotspot/share/oops/klass.hpp).
type shape struct {
	size   uint64 // of all of them, in bytes; of arrays 0
	array  bool
	header uint64 // array: bytes before the first element
	shift  uint8  // array: log2 of the bytes of an element
}

// Layout of a layout helper: of an instance the size in bytes, with a bit that says that allocating it is slow; of an
// array a negative number with these parts.
const (
	helperSlowBits    = wordSize - 1
	helperHeaderShift = 16
	helperHeaderMask  = 0xff
	helperShiftMask   = 0x3f
	maxElementShift   = 3 // long, double, references
)

// newShape decodes a layout helper; ok is false if there is no such object.
func newShape(helper int32) (s shape, ok bool) {
	const smallest = 8 // bytes of an object: with compact headers
	if helper > 0 {
		s.size = uint64(helper) &^ helperSlowBits
		return s, s.size >= smallest
	}
	s = shape{
		array:  true,
		header: uint64(helper>>helperHeaderShift) & helperHeaderMask,
		shift:  uint8(helper & helperShiftMask),
	}
	return s, helper != 0 && s.header > smallest && s.shift <= maxElementShift
}

// bytes is the size of an object; length is that of an array.
func (s shape) bytes(length, alignment uint32) uint64 {
	n := s.size
	if s.array {
		n = s.header + uint64(length)<<s.shift
	}
	return (n + uint64(alignment) - 1) &^ uint64(alignment-1)
}

// readHeads reads classes. What does not look like one is absent: its vtable must be in libjvm, or in the archive of
// classes that JVMs share (CDS), where the VM puts copies of its vtables; its superclasses must begin with Object; and
// it must point to itself where it says, which is what casts check. Methods and constant pools have vtables, too.
func (p *Process) readHeads(klasses []uint64) (map[uint64]klassHead, error) {
	s := &p.schema.object
	var heads batch
	for _, klass := range klasses {
		heads.add(klass, s.headSize())
	}
	if err := heads.read(p.mem); err != nil {
		return nil, err
	}
	found := make(map[uint64]klassHead)
	symbols := make(map[uint64]uint64)
	var addrs []uint64
	for i, klass := range klasses {
		head, ok := heads.bytes(i)
		if !ok || klass%wordSize != 0 {
			continue
		}
		h := klassHead{addr: klass, super: s.super.of(head), vtable: number(head[:wordSize])}
		h.shape, ok = newShape(int32(s.layoutHelper.of(head)))
		if !ok || !p.objects.isVtable(h.vtable) || !p.hasSupers(klass, head) {
			continue
		}
		symbols[klass] = s.name.of(head)
		addrs = append(addrs, symbols[klass])
		found[klass] = h
	}
	names, err := p.methodReader().symbols(addrs)
	if err != nil {
		return nil, err
	}
	for klass, h := range found {
		if h.symbol = names[symbols[klass]]; !sane(h.symbol) || strings.HasPrefix(h.symbol, "[") != h.shape.array {
			delete(found, klass)
			continue
		}
		h.name = objectClass(h.symbol)
		found[klass] = h
	}
	return found, nil
}

// hasSupers reports whether what a class has of its superclasses, down to itself, fits. Interfaces, and classes that
// have too many, are not among them (src/hotspot/share/oops/klass.hpp, Klass::initialize_supers).
func (p *Process) hasSupers(klass uint64, head []byte) bool {
	s := &p.schema.object
	supers := head[s.primary.offset:s.primary.end()]
	if first := number(supers[:wordSize]); first == 0 || p.objects.object != 0 && first != p.objects.object {
		return false
	}
	check := s.superCheck.of(head)
	if check == uint64(s.secondary.offset) {
		return true
	}
	at := check - uint64(s.primary.offset)
	return at%wordSize == 0 && at < uint64(len(supers)) && number(supers[at:at+wordSize]) == klass
}

// sane reports whether a name that was cleaned had nothing that a class name never has.
func sane(name string) bool { return name != "" && !strings.ContainsRune(name, '\ufffd') }
