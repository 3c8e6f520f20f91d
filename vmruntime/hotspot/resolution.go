package hotspot

// poolSchema leads from a method's constant pool to what its calls were resolved to. The interpreter writes that down
// when it first makes a call: up to JDK 21 in the ConstantPoolCacheEntries behind the ConstantPoolCache
// (src/hotspot/share/oops/cpCache.hpp), from 22 on in an array of ResolvedMethodEntry (resolvedMethodEntry.hpp). Call
// sites of invokedynamic have an array of ResolvedIndyEntry from 21 on (resolvedIndyEntry.hpp).
type poolSchema struct {
	cache           field  // of ConstantPool: ConstantPoolCache*
	length          field  // of ConstantPool: constants
	resolvedKlasses field  // of ConstantPool: array of Klass*
	cacheSize       uint64 // of ConstantPoolCache
	entries         field  // of ConstantPoolCache: number of ConstantPoolCacheEntries

	entrySize              uint64 // of ConstantPoolCacheEntry, 0 if there are none
	indices, f1, f2, flags field  // of ConstantPoolCacheEntry
	finalBit, forcedBit    uint   // in flags

	methods, dynamics         field // of ConstantPoolCache: arrays, of ResolvedMethodEntry and ResolvedIndyEntry
	methodSize, dynamicSize   uint64
	methodPool                field // of ResolvedMethodEntry: index of the constant
	methodArray, dynamicArray field // where the entries of an array begin
	arrayLength               field
	klassArray                field
}

func newPoolSchema(r *resolver) poolSchema {
	s := poolSchema{
		cache:           r.field("ConstantPool._cache"),
		length:          r.field("ConstantPool._length"),
		resolvedKlasses: r.optional("ConstantPool._resolved_klasses"),
		cacheSize:       r.size("ConstantPoolCache"),
		entries:         r.optional("ConstantPoolCache._length"),
		entrySize:       r.sizes["ConstantPoolCacheEntry"],
		indices:         r.optional("ConstantPoolCacheEntry._indices"),
		f1:              r.optional("ConstantPoolCacheEntry._f1"),
		f2:              r.optional("ConstantPoolCacheEntry._f2"),
		flags:           r.optional("ConstantPoolCacheEntry._flags"),
		finalBit:        uint(r.constant("ConstantPoolCacheEntry::is_vfinal_shift")),
		forcedBit:       uint(r.constant("ConstantPoolCacheEntry::is_forced_virtual_shift")),
		methods:         r.optional("ConstantPoolCache._resolved_method_entries"),
		dynamics:        r.optional("ConstantPoolCache._resolved_indy_entries"),
		methodSize:      r.sizes["ResolvedMethodEntry"],
		dynamicSize:     r.sizes["ResolvedIndyEntry"],
		methodPool:      r.optional("ResolvedMethodEntry._cpool_index"),
		methodArray:     r.optional("Array<ResolvedMethodEntry>._data[0]", "Array<ResolvedMethodEntry>._data"),
		dynamicArray:    r.optional("Array<ResolvedIndyEntry>._data[0]", "Array<ResolvedIndyEntry>._data"),
		arrayLength:     r.field("Array<int>._length"),
		klassArray:      r.optional("Array<Klass*>._data[0]", "Array<Klass*>._data"),
	}
	old := s.entrySize > 0 && s.entrySize <= maxSize && s.finalBit < 64 && s.forcedBit < 64 &&
		lastEnd(s.indices, s.f1, s.f2, s.flags) <= s.entrySize && s.flags.known && s.f1.known && s.f2.known
	now := s.methods.known && s.methodSize >= methodEntryEnd && s.methodSize <= maxSize && s.methodPool.known &&
		s.methodPool.offset == methodEntryPool && s.methodArray.known
	if !old && !now {
		r.missing = append(r.missing, "ConstantPoolCacheEntry or ResolvedMethodEntry")
	}
	return s
}

// Layout of a ResolvedMethodEntry: the method; the interface, or the index in the vtable; index of the constant,
// number of parameters, kind of result, flags, and the instructions that it was resolved for.
const (
	methodEntryMethod = 0
	methodEntryTable  = 8
	methodEntryPool   = 16
	methodEntryFlags  = 21
	methodEntryOp1    = 22
	methodEntryOp2    = 23
	methodEntryEnd    = 24
	methodEntryFinal  = 1 << 0 // flag: the method cannot be overridden
	methodEntryForced = 1 << 2 // flag: found by the vtable, though called through an interface
)

// noVtable says that a call does not go by the vtable.
const noVtable = -1

// A resolution is what a call was resolved to. The zero value is of a call that was not.
type resolution struct {
	resolved bool
	target   uint64 // the only Method that can be called, 0 if it depends on the receiver
	vtable   int    // index of the receiver's method in its class's vtable, or noVtable
	method   uint64 // of an interface, if it depends on the receiver which method implements it
}

// ofEntry decodes a ConstantPoolCacheEntry, for the instruction op: it may be resolved for another.
func (s *poolSchema) ofEntry(entry []byte, op byte) (constant uint16, found resolution) {
	indices := s.indices.of(entry)
	op1, op2 := byte(indices>>16), byte(indices>>24)
	flags, f1, f2 := s.flags.of(entry), s.f1.of(entry), s.f2.of(entry)
	isFinal, forced := flags>>s.finalBit&1 != 0, flags>>s.forcedBit&1 != 0
	return uint16(indices), resolve(op, op1, op2, isFinal, forced, f1, f2, f2)
}

// ofMethod decodes a ResolvedMethodEntry.
func (s *poolSchema) ofMethod(entry []byte, op byte) (constant uint16, found resolution) {
	word := func(at int) uint64 { return number(entry[at : at+8]) }
	flags := entry[methodEntryFlags]
	method, table := word(methodEntryMethod), word(methodEntryTable)
	virtual := table & 0xffff
	isFinal := flags&methodEntryFinal != 0
	if isFinal {
		virtual = method
	}
	return uint16(number(entry[methodEntryPool : methodEntryPool+2])),
		resolve(op, entry[methodEntryOp1], entry[methodEntryOp2], isFinal, flags&methodEntryForced != 0,
			method, virtual, method)
}

// resolve says what a call by op goes to. op1 and op2 tell for which instructions the entry is resolved; direct is the
// method of calls that are not virtual, virtual that of final ones, or the index in the vtable.
func resolve(op, op1, op2 byte, isFinal, forced bool, direct, virtual, ifaceMethod uint64) resolution {
	if op == opFastInvokeFinal {
		op = opInvokeVirtual
	}
	switch {
	case op == opInvokeVirtual && op2 == op, op == opInvokeInterface && (op1 == op || op2 == opInvokeVirtual) && forced:
		switch {
		case isFinal && virtual != 0:
			return resolution{resolved: true, target: virtual, vtable: noVtable}
		case !isFinal && virtual < maxVtable:
			return resolution{resolved: true, vtable: int(virtual)}
		}
	case op1 != op || direct == 0:
	case op == opInvokeInterface:
		if isFinal { // a private method of the interface
			return resolution{resolved: true, target: ifaceMethod, vtable: noVtable}
		}
		if ifaceMethod != 0 {
			return resolution{resolved: true, vtable: noVtable, method: ifaceMethod}
		}
	default:
		return resolution{resolved: true, target: direct, vtable: noVtable}
	}
	return resolution{}
}
