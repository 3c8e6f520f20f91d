package calldata

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A TrapSchema decodes the counts of uncommon traps in a MethodData: a byte for each reason
// (MethodData::_trap_hist), which stops at 255, and how many optimised compilations of the method
// were given up.
type TrapSchema struct {
	Histogram, Decompiles vmstructs.Field // fields of MethodData
	Reasons               map[int]string  // by their place in the histogram
	owner                 vmstructs.Field
	length                uint64 // bytes of a MethodData that have all of these; 0 if the counts are not known
}

const (
	reasonPrefix = "Deoptimization::Reason_"
	// maxReason bounds the numbers of reasons. JDK 25 has 31.
	maxReason = 63
)

// otherCompilers are names by which compilers other than C2 know reasons that have names already.
var otherCompilers = map[string]bool{"unreached0": true, "type_checked_inlining": true, "optimized_type_check": true}

// newTrapSchema looks up the fields. JDK 8 has the counters in MethodData itself, JDK 17 in a part
// of it (_compiler_counters).
func newTrapSchema(from *vmstructs.Tables) TrapSchema {
	r := &vmstructs.Resolver{Tables: from} // a resolver of its own: without it, only this does not work
	s := TrapSchema{
		owner:      r.Field("MethodData._method"),
		Histogram:  r.Field("MethodData._compiler_counters._trap_hist._array[0]", "MethodData._trap_hist._array[0]"),
		Decompiles: r.Optional("MethodData._compiler_counters._nof_decompiles", "MethodData._nof_decompiles"),
		Reasons:    make(map[int]string),
	}
	last := 0
	for constant, value := range from.Constants {
		name, ok := strings.CutPrefix(constant, reasonPrefix)
		if ok && name == strings.ToLower(name) && name != "many" && name != "none" && value > 0 && value <= maxReason {
			if !otherCompilers[name] {
				s.Reasons[int(value)] = name
			}
			last = max(last, int(value))
		}
	}
	if r.Err() == nil && last > 0 {
		s.Histogram.Width = 1
		s.length = max(vmstructs.LastEnd(s.owner, s.Decompiles), uint64(s.Histogram.Offset)+uint64(last)+1)
		if s.length > vmstructs.MaxSize {
			s.length = 0
		}
	}
	return s
}

// Length is how many bytes of a MethodData Decode needs; 0 if the VM does not say where the counts
// are.
func (s *TrapSchema) Length() uint64 { return s.length }

// Decode reads the counts of a method from the beginning of its MethodData. It is false if that is
// another method's.
func (s *TrapSchema) Decode(method uint64, data []byte) (vmruntime.Traps, bool) {
	if uint64(len(data)) < s.length || s.length == 0 || s.owner.Read(data) != method {
		return vmruntime.Traps{}, false
	}
	t := vmruntime.Traps{Reasons: make(map[string]int)}
	for number, name := range s.Reasons {
		if n := int(data[int(s.Histogram.Offset)+number]); n > 0 {
			t.Reasons[name] = n
		}
	}
	if s.Decompiles.Known {
		t.Decompiles = int(min(s.Decompiles.Read(data), 1<<30))
	}
	return t, true
}
