package calldata

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// KlassSchema leads from a class to the methods that it dispatches to. Behind the fixed part of a
// Klass comes its vtable, an array of Methods; behind that the itable: pairs of an interface and
// where in this Klass its methods are, up to a pair that is null, and the methods
// (src/hotspot/share/oops/klassVtable.hpp). Classes of arrays have their vtable at the same place.
type KlassSchema struct {
	Super, VtableLength vmstructs.Field // fields of Klass; the length in words
	ItableLength        vmstructs.Field // field of InstanceKlass; words
	Methods, Defaults   vmstructs.Field // fields of InstanceKlass: arrays of Method*
	Size                uint64
	MethodArray         vmstructs.Field
}

func newKlassSchema(r *vmstructs.Resolver) KlassSchema {
	s := KlassSchema{
		Super:        r.Field("Klass._super"),
		VtableLength: r.Field("Klass._vtable_len"),
		ItableLength: r.Field("InstanceKlass._itable_len"),
		Methods:      r.Field("InstanceKlass._methods"),
		Defaults:     r.Optional("InstanceKlass._default_methods"),
		Size:         r.Size("InstanceKlass"),
		MethodArray:  r.Field("Array<Method*>._data"),
	}
	if s.Size < vmstructs.LastEnd(s.Super, s.VtableLength, s.ItableLength, s.Methods, s.Defaults) {
		r.Missing = append(r.Missing, "plausible sizeof(InstanceKlass)")
	}
	return s
}

// Bounds on one class: the JVM specification allows 65,535 interfaces and as many methods, and the
// vtable of a class has one entry for each method that it or a superclass adds.
const (
	MaxVtable     = 64 << 10 // words
	MaxItable     = 1 << 20  // words
	MaxInterfaces = 4096     // interfaces that are searched
)

// Layout of an itable: what says where the methods of an interface are, and how a Method says which
// one it is.
const (
	ItableEntry  = 16  // bytes: pointer to the interface, offset in 32 bits
	ItableOffset = 8   // where an entry has the offset, which is from the Klass
	ItableFirst  = -10 // Method._vtable_index of an interface's first method; the second has -11
)
