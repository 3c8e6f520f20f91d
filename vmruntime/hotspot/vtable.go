package hotspot

// klassSchema leads from a class to the methods that it dispatches to. Behind the fixed part of a Klass comes its
// vtable, an array of Methods; behind that the itable: pairs of an interface and where in this Klass its methods are,
// up to a pair that is null, and the methods (src/hotspot/share/oops/klassVtable.hpp). Classes of arrays have their
// vtable at the same place.
type klassSchema struct {
	super, vtableLength field // of Klass; the length in words
	itableLength        field // of InstanceKlass; words
	methods, defaults   field // of InstanceKlass: arrays of Method*
	size                uint64
	methodArray         field
}

func newKlassSchema(r *resolver) klassSchema {
	s := klassSchema{
		super:        r.field("Klass._super"),
		vtableLength: r.field("Klass._vtable_len"),
		itableLength: r.field("InstanceKlass._itable_len"),
		methods:      r.field("InstanceKlass._methods"),
		defaults:     r.optional("InstanceKlass._default_methods"),
		size:         r.size("InstanceKlass"),
		methodArray:  r.field("Array<Method*>._data"),
	}
	if s.size < lastEnd(s.super, s.vtableLength, s.itableLength, s.methods, s.defaults) {
		r.missing = append(r.missing, "plausible sizeof(InstanceKlass)")
	}
	return s
}

// Bounds on one class: the JVM specification allows 65,535 interfaces and as many methods, and the vtable of a class
// has one entry for each method that it or a superclass adds.
const (
	maxVtable     = 64 << 10 // words
	maxItable     = 1 << 20  // words
	maxInterfaces = 4096     // that are searched
)

// Layout of an itable: what says where the methods of an interface are, and how a Method says which one it is.
const (
	itableEntry  = 16  // bytes: pointer to the interface, offset in 32 bits
	itableOffset = 8   // of the offset, from the Klass
	itableFirst  = -10 // Method._vtable_index of an interface's first method; the second has -11
)
