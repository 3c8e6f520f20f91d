package debuginfo

import (
	"encoding/binary"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxLocals bounds the local variables of a scope that are decoded; a method has at most 65,535.
const maxLocals = 1 << 10

// Codes of values in a scope (src/hotspot/share/code/debugInfo.cpp).
const (
	valueLocation = iota
	valueInt
	valueOop
	valueLong
	valueDouble
	valueObject // and what it consists of
	valueObjectID
	valueAutoBox
	valueMarker
)

// A location is a number (src/hotspot/share/code/location.hpp): the type, whether it is a register,
// and which one or where in the frame, in words of 32 bits.
const (
	locationType     = 0xf
	locationNormal   = 1 // int
	locationIntLong  = 3 // int in a register of 64 bits
	locationRegister = 0x10
	locationShift    = 5
	frameWord        = 4
)

// ScopeAt is the offset of the scope of the i-th position, as Decode numbers positions. It is 0 if
// there is none.
func (raw *RawScopes) ScopeAt(i int) uint32 {
	if i < 0 || i >= len(raw.PCs)/pcDescSize {
		return 0
	}
	return binary.LittleEndian.Uint32(raw.PCs[i*pcDescSize+pcDescScope:])
}

// Locals are where a frame keeps the local variables of a scope, as far as they are numbers of type
// int: others, and those behind an object that exists only in pieces, are LocalUnknown, or absent
// at the end.
func (raw *RawScopes) Locals(scope, bias uint32) (locals []vmruntime.Local) {
	if scope == 0 || uint64(scope) >= uint64(len(raw.Scopes)) {
		return nil
	}
	in := Unsigned5{Data: raw.Scopes[scope:], Bias: bias}
	for range 3 { // sender, method, bytecode index
		in.Next()
	}
	at := in.Next()
	if in.Failed || at == 0 || uint64(at) >= uint64(len(raw.Scopes)) {
		return nil
	}
	in = Unsigned5{Data: raw.Scopes[at:], Bias: bias}
	count := min(in.Next(), maxLocals)
	for range count {
		var l vmruntime.Local
		switch in.Next() {
		case valueLocation:
			l = local(in.Next())
		case valueInt, valueOop, valueObjectID:
			in.Next()
		case valueLong, valueDouble:
			in.Next()
			in.Next()
		case valueMarker:
		default:
			return locals
		}
		if in.Failed {
			return locals
		}
		locals = append(locals, l)
	}
	return locals
}

// local decodes a location. On amd64 and arm64 a register has two slots, so that its number is half
// of theirs.
func local(location uint32) vmruntime.Local {
	if of := location & locationType; of != locationNormal && of != locationIntLong {
		return vmruntime.Local{}
	}
	const slots, registers = 2, 32
	at := location >> locationShift
	switch {
	case location&locationRegister == 0:
		return vmruntime.Local{Kind: vmruntime.LocalStack, Offset: int32(at * frameWord)}
	case at%slots == 0 && at < slots*registers:
		return vmruntime.Local{Kind: vmruntime.LocalRegister, Register: uint8(at / slots)}
	}
	return vmruntime.Local{}
}
