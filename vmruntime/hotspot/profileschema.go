package hotspot

import (
	"errors"
	"fmt"
)

// What each JDK moved, of what the VM counts. Nearly all is in its tables; what is not is said where it is used.
//
//	JDK     change
//	9       bytecodes that HotSpot rewrites have the numbers of bytecode.go. What is before is not supported.
//	9-25    the counts of invocations and back edges of a MethodData are in no table: they are four 32-bit numbers right
//	        before _tenure_traps: invocations, back edges, and both when profiling started.
//	9-21    in builds with JVMCI, the entries of receivers have a cell between the counter and the rows: seen on 17,
//	        in the sources of 21, gone on 25. It is found by trial: see dataDecoder.
//	<=17    InvocationCounter has its number from bit 1 on, from bit 3 before (InvocationCounter::count_shift). Bit 0 is
//	        set when the VM found the number large enough; the number goes on.
//	21      call sites of invokedynamic have an array of their own: ConstantPoolCache._resolved_indy_entries.
//	22      so do methods: _resolved_method_entries, in place of ConstantPoolCacheEntry; see poolschema.go. Indexes of
//	        invokedynamic are not negated any more; both are understood.
//	23      an nmethod's entry points are 16-bit offsets from its code, no pointers any more.
//	25      Klass and InstanceKlass have other sizes; the vtable still follows an InstanceKlass, and the itable that.
//	25      C1 inlines clone of an array and does not count it: calls of intrinsics may be missing from the counts.
//
// Measured on 17 and 25 (TestKnownCalls): with C1's code of level 3 every count is exact. Level 2 counts nothing but
// invocations, level 1, C2 and -Xint nothing at all. A method that C1 finds trivial never gets a MethodData.

// A profileSchema leads from a Method to what the VM counted in it.
type profileSchema struct {
	methodData, methodCounters field // of Method
	vtableIndex                field // of Method; negative for those that are not in a vtable
	countersInvocations        field // of MethodCounters
	owner                      field // of MethodData: its Method
	invocations, backEdges     field // of MethodData
	invocationsStart           field // of MethodData
	backEdgesStart             field
	dataSize, data             field // of MethodData: bytes, and where they begin
	countShift                 uint  // of all counters of invocations and back edges
	tags                       [256]dataKind

	pool  poolSchema
	klass klassSchema
	lacks []string // what the VM does not export
}

func newProfileSchema(from *structs) profileSchema {
	r := &resolver{structs: from} // of its own: without it, only this does not work
	s := profileSchema{
		methodData:          r.field("Method._method_data"),
		methodCounters:      r.field("Method._method_counters"),
		vtableIndex:         r.field("Method._vtable_index"),
		countersInvocations: r.field("MethodCounters._invocation_counter"),
		owner:               r.field("MethodData._method"),
		dataSize:            r.field("MethodData._data_size"),
		data:                r.field("MethodData._data[0]"),
		countShift:          uint(r.constant("InvocationCounter::count_shift")) & 31,
		tags:                dataKinds(r),
		pool:                newPoolSchema(r),
		klass:               newKlassSchema(r),
	}
	s.countersInvocations.width = 4 // an object of one 32-bit number, of which the table does not know the width
	const before = 16
	traps := r.field("MethodData._tenure_traps")
	if !traps.known || traps.offset < before {
		r.missing = append(r.missing, "plausible offset of MethodData._tenure_traps")
	} else {
		for i, f := range []*field{&s.invocations, &s.backEdges, &s.invocationsStart, &s.backEdgesStart} {
			*f = field{offset: traps.offset - before + uint32(4*i), width: 4, known: true}
		}
	}
	if s.countShift == 0 {
		r.missing = append(r.missing, "InvocationCounter::count_shift")
	}
	s.lacks = r.missing
	return s
}

// header is how many bytes of a MethodData are before its data.
func (s *profileSchema) header() uint64 { return uint64(s.data.offset) }

// err tells whether this VM's counts can be read.
func (s *profileSchema) err(jdk int) error {
	if jdk < 9 {
		return errors.New("counts of calls are not known of JDK 8: use 9 or newer")
	}
	if len(s.lacks) > 0 {
		return fmt.Errorf("counts of calls: %w", (&resolver{missing: s.lacks}).err())
	}
	return nil
}
