package javaheap

import (
	"debug/elf"
	"errors"
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A ColourSchema leads to the bits that ZGC keeps next to the address in a reference
// (src/hotspot/share/gc/z/zAddress.hpp).
type ColourSchema struct {
	// globals and oldGlobals are statics, pointers to ZGlobalsForVMStructs and
	// XGlobalsForVMStructs; 0 without ZGC.
	globals, oldGlobals uint64
	mask, oldMask       vmstructs.Field // fields of both: pointer to the largest offset in the heap
	// bad and oldBad are fields of both: pointer to the bits that a reference has none of if its
	// object has not moved since.
	bad, oldBad  vmstructs.Field
	generational bool // Z's globals are those of generational ZGC

	forwarding, oldForwarding forwardingSchema
}

// NewColourSchema looks up the variables of ZGC. All are optional: a VM may have been built without
// it.
func NewColourSchema(r *vmstructs.Resolver) ColourSchema {
	return ColourSchema{
		globals:      r.OptionalStatic("ZGlobalsForVMStructs._instance_p"),
		mask:         r.Optional("ZGlobalsForVMStructs._ZAddressOffsetMask"),
		oldGlobals:   r.OptionalStatic("XGlobalsForVMStructs._instance_p"),
		oldMask:      r.Optional("XGlobalsForVMStructs._XAddressOffsetMask"),
		bad:          r.Optional("ZGlobalsForVMStructs._ZPointerLoadBadMask"),
		oldBad:       r.Optional("XGlobalsForVMStructs._XAddressBadMask"),
		generational: r.Optional("ZGlobalsForVMStructs._ZPointerLoadShift").Known,

		forwarding:    newForwardingSchema(r, "Z"),
		oldForwarding: newForwardingSchema(r, "X"),
	}
}

// Where references of generational ZGC have their bits. On amd64 an address, whose lowest three
// bits are 0, begins with those right behind the one bit of colourFirst to colourLast that is set.
const (
	colourFirst, colourLast = 12, 15
	colourShiftARM64        = 16
)

// GenerationalZ reports whether references are coloured.
func (r Reader) GenerationalZ() bool {
	_, mayBeOff := r.Flags["ZGenerational"]
	return r.Colours.generational && (!mayBeOff || r.Flags.On("ZGenerational"))
}

// colouredHeap is where ZGC's objects are: offsets up to a power of two, and above it in the
// address a bit that says which view of the heap it is. Generational ZGC has one view; the one
// before had three, in three bits.
func (r Reader) colouredHeap() (low, high uint64, err error) {
	s := r.Colours
	globals, field, views := s.globals, s.mask, uint64(2)
	if !r.GenerationalZ() {
		views = 8
		if s.generational {
			globals, field = s.oldGlobals, s.oldMask
		}
	}
	if globals == 0 || !field.Known {
		return 0, 0, errors.New("the VM does not export where ZGC has its heap")
	}
	instance, err := r.Word(globals)
	if err != nil {
		return 0, 0, err
	}
	pointer, err := r.Word(field.At(instance))
	if err != nil {
		return 0, 0, err
	}
	mask, err := r.Word(pointer)
	if err != nil {
		return 0, 0, err
	}
	const most = 1 << 46 // zGlobals_x86.cpp: 16 TiB
	if mask == 0 || mask&(mask+1) != 0 || mask >= most {
		return 0, 0, fmt.Errorf("offsets of ZGC up to %#x: %w", mask, vmruntime.ErrMalformed)
	}
	return mask + 1, views * (mask + 1), nil
}

// BadColours is where the VM has the bits by which a reference may be to an object that has moved;
// 0 if it does not say.
func (r Reader) BadColours() (uint64, error) {
	s := r.Colours
	globals, field := s.globals, s.bad
	if !r.GenerationalZ() && s.generational {
		globals, field = s.oldGlobals, s.oldBad
	}
	if globals == 0 || !field.Known {
		return 0, nil
	}
	instance, err := r.Word(globals)
	if err != nil {
		return 0, err
	}
	return r.Word(field.At(instance))
}

// LayoutColours says how references are coloured.
func (l *ObjectLayout) LayoutColours(machine elf.Machine) {
	l.OopIsColoured = true
	if machine == elf.EM_AARCH64 {
		l.OopColourShift = colourShiftARM64
	}
}

// Uncolour is the address in a reference of 64 bits; 0 if it has a colour that does not exist.
func (l *ObjectLayout) Uncolour(reference uint64) uint64 {
	if !l.OopIsColoured || reference == 0 {
		return reference
	}
	if l.OopColourShift != 0 {
		return reference >> l.OopColourShift
	}
	colours := reference >> colourFirst & (1<<(colourLast-colourFirst+1) - 1)
	if bits.OnesCount64(colours) != 1 {
		return 0
	}
	return reference >> (colourFirst + bits.TrailingZeros64(colours) + 1)
}
