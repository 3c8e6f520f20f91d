package javaheap

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// maxFields bounds the fields of one class, its superclasses aside. A class file may have 65,535;
// those of the JDK and of the suite's programs have less than 1,000.
const maxFields = 4096

// A FieldRecord is one field as an InstanceKlass keeps it.
type FieldRecord struct {
	Name, Signature uint32 // indexes in the constant pool; of the VM's own Symbols if injected
	Offset          uint32 // bytes from the object's start; of a static field from that of the java.lang.Class
	Static          bool
	Injected        bool // injected by the VM, not by the class file
}

// Bits of access flags: JVM specification, section 4.5; and the one by which JDKs up to 20 know
// that an array has one more number for a field, with the generic signature
// (src/hotspot/share/utilities/accessFlags.hpp).
const (
	accessStatic  = 0x0008
	accessGeneric = 0x0800
)

// Layout of a field in the array of JDKs up to 20: 16-bit numbers
// (src/hotspot/share/oops/fieldInfo.hpp). The last two are the offset's lower and upper half,
// shifted by two bits that say what it is.
const (
	slotAccess    = 0
	slotName      = 1
	slotSignature = 2
	slotLow       = 4
	slotHigh      = 5
	fieldSlots    = 6

	packedShift    = 2
	packedIsOffset = 1 // set when the class was laid out
)

// ParseFieldArray reads the fields of a class from an array of 16-bit numbers. The first few,
// declared of them, are those of the class file; the others the VM injected; behind all of them is
// a number each for those that are generic. What was cut off is missing.
func ParseFieldArray(data []byte, declared int) (records []FieldRecord) {
	slot := func(i int) uint32 { return uint32(data[2*i]) | uint32(data[2*i+1])<<8 }
	slots := len(data) / 2
	for at := 0; at+fieldSlots <= slots && len(records) < maxFields; at += fieldSlots {
		access := slot(at + slotAccess)
		if access&accessGeneric != 0 {
			slots--
			if at+fieldSlots > slots {
				break
			}
		}
		packed := slot(at+slotHigh)<<16 | slot(at+slotLow)
		if packed&packedIsOffset == 0 {
			continue
		}
		records = append(records, FieldRecord{
			Name:      slot(at + slotName),
			Signature: slot(at + slotSignature),
			Offset:    packed >> packedShift,
			Static:    access&accessStatic != 0,
			Injected:  at/fieldSlots >= declared,
		})
	}
	return records
}

// FieldBits are the flags of a field in the stream of JDK 21 and later that say what follows; 0
// where the VM has no such flag. The last two came with value classes.
type FieldBits struct{ initialised, injected, generic, contended, flat, nullMarker uint32 }

// NewFieldBits looks up the numbers of the flags.
func NewFieldBits(r *vmstructs.Resolver) FieldBits {
	bit := func(name string) uint32 {
		at, ok := r.Constants["FieldInfo::FieldFlags::_ff_"+name]
		if !ok || at < 0 || at > 31 {
			return 0
		}
		return 1 << at
	}
	return FieldBits{bit("initialized"), bit("injected"), bit("generic"), bit("contended"), bit("flat"),
		bit("null_marker")}
}

// ParseFieldStream reads the fields of a class from an UNSIGNED5 stream (FieldInfoReader in
// src/hotspot/share/oops/fieldInfo.inline.hpp): how many are declared and how many injected; for
// each its name, its signature, its offset, access flags and other flags; and where the latter say
// so, its initial value, its generic signature, its contention group, how it is flat and where it
// says that it is null. It is an error if the stream ends early, or says more than maxFields.
func ParseFieldStream(data []byte, bias uint32, bits FieldBits) (records []FieldRecord, err error) {
	s := debuginfo.Unsigned5{Data: data, Bias: bias}
	count := uint64(s.Next()) + uint64(s.Next())
	if s.Failed || count > maxFields {
		return nil, fmt.Errorf("%d fields: %w", count, vmruntime.ErrMalformed)
	}
	for range count {
		record := FieldRecord{Name: s.Next(), Signature: s.Next(), Offset: s.Next()}
		access, flags := s.Next(), s.Next()
		for _, bit := range []uint32{bits.initialised, bits.generic, bits.contended, bits.flat, bits.nullMarker} {
			if flags&bit != 0 {
				s.Next()
			}
		}
		if s.Failed {
			return nil, fmt.Errorf("field %d of %d: %w", len(records), count, vmruntime.ErrMalformed)
		}
		record.Static, record.Injected = access&accessStatic != 0, flags&bits.injected != 0
		records = append(records, record)
	}
	return records, nil
}
