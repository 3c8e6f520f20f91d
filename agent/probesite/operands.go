package probesite

import "golang.org/x/arch/x86/x86asm"

// operands decodes an instruction with its operands. It is false where x86asm does not know it, or has its length wrong: it
// takes the prefixes of what it does not know for instructions of their own. VEX and EVEX are left out, as it knows some of
// them only, and some wrongly.
func operands(code []byte) (x86asm.Inst, bool) {
	i, err := Decode(code)
	if err != nil || i.encoding.extended {
		return x86asm.Inst{}, false
	}
	known, err := x86asm.Decode(code[:i.Len], 64)
	return known, err == nil && known.Op != 0 && known.Len == i.Len
}
