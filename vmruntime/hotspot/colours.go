package hotspot

import (
	"debug/elf"
	"errors"
	"fmt"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A colourSchema leads to what ZGC has beside addresses in its references (src/hotspot/share/gc/z/zAddress.hpp).
type colourSchema struct {
	globals, oldGlobals uint64 // statics, pointers to ZGlobalsForVMStructs and XGlobalsForVMStructs; 0 without ZGC
	mask, oldMask       field  // of them: pointer to the largest offset in the heap
	bad, oldBad         field  // of them: pointer to the bits that a reference has none of if its object has not moved since
	generational        bool   // Z's globals are those of generational ZGC
}

func newColourSchema(r *resolver) colourSchema {
	return colourSchema{
		globals:      r.optionalStatic("ZGlobalsForVMStructs._instance_p"),
		mask:         r.optional("ZGlobalsForVMStructs._ZAddressOffsetMask"),
		oldGlobals:   r.optionalStatic("XGlobalsForVMStructs._instance_p"),
		oldMask:      r.optional("XGlobalsForVMStructs._XAddressOffsetMask"),
		bad:          r.optional("ZGlobalsForVMStructs._ZPointerLoadBadMask"),
		oldBad:       r.optional("XGlobalsForVMStructs._XAddressBadMask"),
		generational: r.optional("ZGlobalsForVMStructs._ZPointerLoadShift").known,
	}
}

// Where references of generational ZGC have their bits. On amd64 an address, whose lowest three bits are 0, begins with
// those right behind the one bit of colourFirst to colourLast that is set.
const (
	colourFirst, colourLast = 12, 15
	colourShiftARM64        = 16
)

// generationalZ reports whether references are coloured.
func (r heapReader) generationalZ() bool {
	_, mayBeOff := r.flags["ZGenerational"]
	return r.colours.generational && (!mayBeOff || r.flags.on("ZGenerational"))
}

// colouredHeap is where ZGC's objects are: offsets up to a power of two, and above it in the address a bit that says
// which view of the heap it is. Generational ZGC has one view; the one before had three, in three bits.
func (r heapReader) colouredHeap() (low, high uint64, err error) {
	s := r.colours
	globals, field, views := s.globals, s.mask, uint64(2)
	if !r.generationalZ() {
		views = 8
		if s.generational {
			globals, field = s.oldGlobals, s.oldMask
		}
	}
	if globals == 0 || !field.known {
		return 0, 0, errors.New("the VM does not export where ZGC has its heap")
	}
	instance, err := r.word(globals)
	if err != nil {
		return 0, 0, err
	}
	pointer, err := r.word(field.at(instance))
	if err != nil {
		return 0, 0, err
	}
	mask, err := r.word(pointer)
	if err != nil {
		return 0, 0, err
	}
	const most = 1 << 46 // zGlobals_x86.cpp: 16 TiB
	if mask == 0 || mask&(mask+1) != 0 || mask >= most {
		return 0, 0, fmt.Errorf("offsets of ZGC up to %#x: %w", mask, vmruntime.ErrMalformed)
	}
	return mask + 1, views * (mask + 1), nil
}

// badColours is where the VM has the bits by which a reference may be to an object that has moved; 0 if it does not say.
func (r heapReader) badColours() (uint64, error) {
	s := r.colours
	globals, field := s.globals, s.bad
	if !r.generationalZ() && s.generational {
		globals, field = s.oldGlobals, s.oldBad
	}
	if globals == 0 || !field.known {
		return 0, nil
	}
	instance, err := r.word(globals)
	if err != nil {
		return 0, err
	}
	return r.word(field.at(instance))
}

// layoutColours says how references are coloured.
func (l *ObjectLayout) layoutColours(machine elf.Machine) {
	l.OopIsColoured = true
	if machine == elf.EM_AARCH64 {
		l.OopColourShift = colourShiftARM64
	}
}

// uncolour is the address in a reference of 64 bits; 0 if it has a colour that does not exist.
func (l *ObjectLayout) uncolour(reference uint64) uint64 {
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
