package calldata

import (
	"encoding/binary"
	"math"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Instructions that matter here (JVM specification, section 6.5), and those that HotSpot puts in
// the place of others when it links a class or runs it
// (src/hotspot/share/interpreter/bytecodes.hpp, the same numbers from JDK 9 to 25).
const (
	opIInc            = 132
	opTableSwitch     = 170
	opLookupSwitch    = 171
	OpInvokeVirtual   = 182
	OpInvokeSpecial   = 183
	OpInvokeStatic    = 184
	OpInvokeInterface = 185
	OpInvokeDynamic   = 186
	opMonitorEnter    = 194
	opWide            = 196
	OpFastInvokeFinal = 227 // was invokevirtual
	opFastLinear      = 228 // was lookupswitch
	opFastBinary      = 229 // was lookupswitch
	OpInvokeHandle    = 233 // was invokevirtual, of a method handle
)

// bytecodeLengths has the length of each instruction by its number: bytes, 0 for what has no fixed
// length. Those of HotSpot have the length of what they replaced: the second instruction of a fused
// pair stays where it was, so that fast_iaccess_0 is as long as the aload_0 that it begins with.
// What a breakpoint (202) hides is not in the bytecode.
const bytecodeLengths = "" +
	"111111111111111123233222221111111111111111111111111111222221" + // from 0, nop
	"111111111111111111111111111111111111111111111111111111111111" + // from 60, istore_1
	"111111111111311111111111111111111333333333333333320011111133" + // from 120, ishl
	"33333553231133110433550333333333333333331111222300231333121" //    from 180, getfield

// An Invoke is a call in bytecode.
type Invoke struct {
	BCI   int
	Kind  vmruntime.CallKind
	Op    byte
	Index uint32 // in the constant pool cache: of a method, or for a DynamicCall by OpInvokeDynamic of a call site
}

// Invokes lists the calls in a method's bytecode, by ascending index. complete is false if it ends
// in the middle, at something that is no instruction.
func Invokes(code []byte) (calls []Invoke, complete bool) {
	for bci := 0; bci < len(code); {
		length := bytecodeLength(code, bci)
		if length == 0 || length > len(code)-bci {
			return calls, false
		}
		if call, ok := invokeAt(code[bci:]); ok {
			call.BCI = bci
			calls = append(calls, call)
		}
		bci += length
	}
	return calls, true
}

// MonitorEnters lists where a method's bytecode enters monitors: the first most of the indexes.
func MonitorEnters(code []byte, most int) (enters []uint16) {
	for bci := 0; bci < min(len(code), math.MaxUint16) && len(enters) < most; {
		if code[bci] == opMonitorEnter {
			enters = append(enters, uint16(bci))
		}
		length := bytecodeLength(code, bci)
		if length == 0 {
			break
		}
		bci += length
	}
	return enters
}

// invokeAt decodes the instruction that code begins with, which is all there. The linked class has
// indexes in the byte order of the machine, not in that of class files.
func invokeAt(code []byte) (Invoke, bool) {
	call := Invoke{Op: code[0]}
	switch code[0] {
	case OpInvokeStatic:
		call.Kind = vmruntime.StaticCall
	case OpInvokeSpecial:
		call.Kind = vmruntime.SpecialCall
	case OpInvokeVirtual, OpFastInvokeFinal:
		call.Kind = vmruntime.VirtualCall
	case OpInvokeInterface:
		call.Kind = vmruntime.InterfaceCall
	case OpInvokeHandle:
		call.Kind = vmruntime.DynamicCall
	case OpInvokeDynamic:
		call.Kind = vmruntime.DynamicCall
		call.Index = binary.LittleEndian.Uint32(code[1:])
		if int32(call.Index) < 0 { // up to about JDK 22, to distinguish them from others
			call.Index = ^call.Index
		}
		return call, true
	default:
		return Invoke{}, false
	}
	call.Index = uint32(binary.LittleEndian.Uint16(code[1:]))
	return call, true
}

// bytecodeLength is how many bytes the instruction at bci has, 0 if it is none or is cut off.
func bytecodeLength(code []byte, bci int) int {
	op := int(code[bci])
	if op >= len(bytecodeLengths) {
		return 0
	}
	if n := int(bytecodeLengths[op] - '0'); n != 0 {
		return n
	}
	const word = 4
	table := (bci/word + 1) * word // switches have a table of 32-bit numbers behind padding
	number := func(i int) int64 {  // in the byte order of class files
		if at := table + i*word; at+word <= len(code) {
			return int64(int32(binary.BigEndian.Uint32(code[at:])))
		}
		return -1
	}
	var words int64
	switch op {
	case opWide:
		switch {
		case bci+1 >= len(code):
			return 0
		case code[bci+1] == opIInc:
			return 6
		}
		return 4
	case opTableSwitch: // default, low, high, targets
		words = 3 + number(2) - number(1) + 1
		if table+3*word > len(code) || number(2) < number(1) {
			return 0
		}
	case opLookupSwitch, opFastLinear, opFastBinary: // default, count, pairs
		words = 2 + 2*number(1)
		if number(1) < 0 {
			return 0
		}
	default:
		return 0
	}
	if words > int64(len(code)) {
		return 0
	}
	return table - bci + int(words)*word
}
