package calldata

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// PoolSchema leads from a method's constant pool to what its calls were resolved to. The
// interpreter writes that down when it first makes a call: up to JDK 21 in the
// ConstantPoolCacheEntries behind the ConstantPoolCache (src/hotspot/share/oops/cpCache.hpp), from
// 22 on in an array of ResolvedMethodEntry (resolvedMethodEntry.hpp). Call sites of invokedynamic
// have an array of ResolvedIndyEntry from 21 on (resolvedIndyEntry.hpp).
type PoolSchema struct {
	Cache           vmstructs.Field // field of ConstantPool: ConstantPoolCache*
	Length          vmstructs.Field // field of ConstantPool: constants
	ResolvedKlasses vmstructs.Field // field of ConstantPool: array of Klass*
	CacheSize       uint64          // bytes of ConstantPoolCache

	EntrySize              uint64          // bytes of ConstantPoolCacheEntry, 0 if there are none
	indices, f1, f2, flags vmstructs.Field // fields of ConstantPoolCacheEntry
	finalBit, forcedBit    uint            // in flags

	// Methods and Dynamics are fields of ConstantPoolCache: arrays of ResolvedMethodEntry and
	// ResolvedIndyEntry.
	Methods, Dynamics         vmstructs.Field
	MethodSize, DynamicSize   uint64
	methodPool                vmstructs.Field // field of ResolvedMethodEntry: index of the constant
	MethodArray, DynamicArray vmstructs.Field // where the entries of an array begin
	ArrayLength               vmstructs.Field
	KlassArray                vmstructs.Field
}

func newPoolSchema(r *vmstructs.Resolver) PoolSchema {
	s := PoolSchema{
		Cache:           r.Field("ConstantPool._cache"),
		Length:          r.Field("ConstantPool._length"),
		ResolvedKlasses: r.Optional("ConstantPool._resolved_klasses"),
		CacheSize:       r.Size("ConstantPoolCache"),
		EntrySize:       r.Sizes["ConstantPoolCacheEntry"],
		indices:         r.Optional("ConstantPoolCacheEntry._indices"),
		f1:              r.Optional("ConstantPoolCacheEntry._f1"),
		f2:              r.Optional("ConstantPoolCacheEntry._f2"),
		flags:           r.Optional("ConstantPoolCacheEntry._flags"),
		finalBit:        uint(r.Constant("ConstantPoolCacheEntry::is_vfinal_shift")),
		forcedBit:       uint(r.Constant("ConstantPoolCacheEntry::is_forced_virtual_shift")),
		Methods:         r.Optional("ConstantPoolCache._resolved_method_entries"),
		Dynamics:        r.Optional("ConstantPoolCache._resolved_indy_entries"),
		MethodSize:      r.Sizes["ResolvedMethodEntry"],
		DynamicSize:     r.Sizes["ResolvedIndyEntry"],
		methodPool:      r.Optional("ResolvedMethodEntry._cpool_index"),
		MethodArray:     r.Optional("Array<ResolvedMethodEntry>._data[0]", "Array<ResolvedMethodEntry>._data"),
		DynamicArray:    r.Optional("Array<ResolvedIndyEntry>._data[0]", "Array<ResolvedIndyEntry>._data"),
		ArrayLength:     r.Field("Array<int>._length"),
		KlassArray:      r.Optional("Array<Klass*>._data[0]", "Array<Klass*>._data"),
	}
	old := s.EntrySize > 0 && s.EntrySize <= vmstructs.MaxSize && s.finalBit < 64 && s.forcedBit < 64 &&
		vmstructs.LastEnd(s.indices, s.f1, s.f2, s.flags) <= s.EntrySize && s.flags.Known && s.f1.Known && s.f2.Known
	now := s.Methods.Known && s.MethodSize >= methodEntryEnd && s.MethodSize <= vmstructs.MaxSize &&
		s.methodPool.Known &&
		s.methodPool.Offset == methodEntryPool && s.MethodArray.Known
	if !old && !now {
		r.Missing = append(r.Missing, "ConstantPoolCacheEntry or ResolvedMethodEntry")
	}
	return s
}

// Layout of a ResolvedMethodEntry: the method; the interface, or the index in the vtable; index of
// the constant, number of parameters, kind of result, flags, and the instructions that it was
// resolved for.
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

// NoVtable says that a call does not go by the vtable.
const NoVtable = -1

// A Resolution is what a call was resolved to. The zero value is of a call that was not.
type Resolution struct {
	Resolved bool
	Target   uint64 // the only Method that can be called, 0 if it depends on the receiver
	Vtable   int    // index of the receiver's method in its class's vtable, or NoVtable
	Method   uint64 // method of an interface, if it depends on the receiver which method implements it
}

// DecodeEntry decodes a ConstantPoolCacheEntry, for the instruction op: it may be resolved for
// another.
func (s *PoolSchema) DecodeEntry(entry []byte, op byte) (constant uint16, found Resolution) {
	indices := s.indices.Read(entry)
	op1, op2 := byte(indices>>16), byte(indices>>24)
	flags, f1, f2 := s.flags.Read(entry), s.f1.Read(entry), s.f2.Read(entry)
	isFinal, forced := flags>>s.finalBit&1 != 0, flags>>s.forcedBit&1 != 0
	return uint16(indices), resolve(op, op1, op2, isFinal, forced, f1, f2, f2)
}

// DecodeMethodEntry decodes a ResolvedMethodEntry.
func (s *PoolSchema) DecodeMethodEntry(entry []byte, op byte) (constant uint16, found Resolution) {
	word := func(at int) uint64 { return vmstructs.Number(entry[at : at+8]) }
	flags := entry[methodEntryFlags]
	method, table := word(methodEntryMethod), word(methodEntryTable)
	virtual := table & 0xffff
	isFinal := flags&methodEntryFinal != 0
	if isFinal {
		virtual = method
	}
	return uint16(vmstructs.Number(entry[methodEntryPool : methodEntryPool+2])),
		resolve(op, entry[methodEntryOp1], entry[methodEntryOp2], isFinal, flags&methodEntryForced != 0,
			method, virtual, method)
}

// resolve says what a call by op goes to. op1 and op2 are the instructions for which the entry is
// resolved; direct is the method of calls that are not virtual, virtual that of final ones, or the
// index in the vtable.
func resolve(op, op1, op2 byte, isFinal, forced bool, direct, virtual, ifaceMethod uint64) Resolution {
	if op == OpFastInvokeFinal {
		op = OpInvokeVirtual
	}
	switch {
	case op == OpInvokeVirtual && op2 == op, op == OpInvokeInterface && (op1 == op || op2 == OpInvokeVirtual) && forced:
		switch {
		case isFinal && virtual != 0:
			return Resolution{Resolved: true, Target: virtual, Vtable: NoVtable}
		case !isFinal && virtual < MaxVtable:
			return Resolution{Resolved: true, Vtable: int(virtual)}
		}
	case op1 != op || direct == 0:
	case op == OpInvokeInterface:
		if isFinal { // a private method of the interface
			return Resolution{Resolved: true, Target: ifaceMethod, Vtable: NoVtable}
		}
		if ifaceMethod != 0 {
			return Resolution{Resolved: true, Vtable: NoVtable, Method: ifaceMethod}
		}
	default:
		return Resolution{Resolved: true, Target: direct, Vtable: NoVtable}
	}
	return Resolution{}
}
