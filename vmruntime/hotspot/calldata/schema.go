// Package calldata decodes what HotSpot keeps of the calls in a method: its bytecode, what the
// calls were resolved to, and how often the interpreter and C1 counted them.
//
//	calls, complete := calldata.Invokes(bytecode)
//	constant, to := schema.Pool.DecodeEntry(entry, op)     // an entry of the constant pool cache
//	counts, err := calldata.NewDecoder(reader, &flags, &schema.Tags, jdk).Decode(data)
//
// Files:
//
//	schema      from a Method to its counts
//	bytecode    the calls in a method
//	flow        basic blocks of a method, what jumps counted, changes of local variables
//	traps       counts of uncommon traps
//	resolution  what a call was resolved to
//	methoddata  counts of calls and classes of receivers
//	vtable      the vtable and itable of a class
//
// The decoders take bytes that may be anything: they return an error, or less, but never read
// outside.
package calldata

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Schema leads from a Method to what the VM counted in it. What each JDK moved is in the table in
// hotspot/jdks.go.
//
// Measured on JDK 17 and 25 (hotspot.TestKnownCalls): with C1's code of level 3 every count is
// exact. Level 2 counts nothing but invocations, and level 1, C2 and -Xint count nothing at all. A
// method that C1 finds trivial never gets a MethodData.
type Schema struct {
	MethodData, MethodCounters vmstructs.Field // fields of Method
	VtableIndex                vmstructs.Field // field of Method; negative for those that are not in a vtable
	CountersInvocations        vmstructs.Field // field of MethodCounters
	Owner                      vmstructs.Field // field of MethodData: its Method
	Invocations                vmstructs.Field // field of MethodData
	DataSize, data             vmstructs.Field // fields of MethodData: bytes, and where they begin
	CountShift                 uint            // shift of all counters of invocations
	Tags                       [256]dataKind
	Traps                      TrapSchema

	Pool  PoolSchema
	Klass KlassSchema
	lacks []string // what the VM does not export
}

// NewSchema looks up the fields. Schema.Err says what is missing, as only counts of calls need
// them.
func NewSchema(from *vmstructs.Tables) Schema {
	r := &vmstructs.Resolver{Tables: from} // a resolver of its own: without it, only this does not work
	s := Schema{
		MethodData:          r.Field("Method._method_data"),
		MethodCounters:      r.Field("Method._method_counters"),
		VtableIndex:         r.Field("Method._vtable_index"),
		CountersInvocations: r.Field("MethodCounters._invocation_counter"),
		Owner:               r.Field("MethodData._method"),
		DataSize:            r.Field("MethodData._data_size"),
		data:                r.Field("MethodData._data[0]"),
		CountShift:          uint(r.Constant("InvocationCounter::count_shift")) & 31,
		Tags:                dataKinds(r),
		Traps:               newTrapSchema(from),
		Pool:                newPoolSchema(r),
		Klass:               newKlassSchema(r),
	}
	s.CountersInvocations.Width = 4 // an object of one 32-bit number, of which the table does not know the width
	const before = 16
	traps := r.Field("MethodData._tenure_traps")
	if !traps.Known || traps.Offset < before {
		r.Missing = append(r.Missing, "plausible offset of MethodData._tenure_traps")
	} else {
		s.Invocations = vmstructs.Field{Offset: traps.Offset - before, Width: 4, Known: true}
	}
	if s.CountShift == 0 {
		r.Missing = append(r.Missing, "InvocationCounter::count_shift")
	}
	s.lacks = r.Missing
	return s
}

// Header is how many bytes of a MethodData are before its data.
func (s *Schema) Header() uint64 { return uint64(s.data.Offset) }

// Err is nil if the counts of a VM of that JDK can be read.
func (s *Schema) Err(jdk int) error {
	if jdk < 9 { // see the table in hotspot/jdks.go
		return errors.New("counts of calls are not known of JDK 8: use 9 or newer")
	}
	if len(s.lacks) > 0 {
		return fmt.Errorf("counts of calls: %w", (&vmstructs.Resolver{Missing: s.lacks}).Err())
	}
	return nil
}
