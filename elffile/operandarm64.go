package elffile

import (
	"debug/elf"
	"strings"
)

// parseARM64 reads an operand as compilers print it for arm64: x0, w1 or sp, a bare number, [x0],
// [sp, 8], or [x0, x1] with "lsl N" for the scale. Pre- and post-indexed forms do not occur in a
// value's place.
func parseARM64(op string) (Operand, error) {
	if op == "xzr" || op == "wzr" { // reads as zero
		return Operand{Kind: OperandConst}, nil
	}
	if r, ok := parseReg(elf.EM_AARCH64, op); ok {
		return Operand{Kind: OperandReg, Reg: r}, nil
	}
	address, open := strings.CutPrefix(op, "[")
	address, closed := strings.CutSuffix(address, "]")
	if !open {
		n, err := parseNumber(strings.TrimPrefix(op, "#"))
		return Operand{Kind: OperandConst, Disp: n}, err
	}
	parts := strings.Split(address, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	base, ok := wideARM64(parts[0])
	if !ok || !closed || len(parts) > 3 {
		return Operand{}, errOperand
	}
	operand := Operand{Kind: OperandMem, Reg: base}
	if len(parts) == 1 {
		return operand, nil
	}
	if index, ok := wideARM64(parts[1]); ok && index != SP {
		operand.Index, operand.Scale = index, 1
	} else if n, err := parseNumber(strings.TrimPrefix(parts[1], "#")); err == nil && len(parts) == 2 {
		operand.Disp = n
	} else {
		return Operand{}, errOperand
	}
	if len(parts) == 3 {
		shift, ok := strings.CutPrefix(parts[2], "lsl ")
		n, err := parseNumber(strings.TrimPrefix(shift, "#"))
		if !ok || err != nil || n < 0 || n > 3 {
			return Operand{}, errOperand
		}
		operand.Scale = 1 << n
	}
	return operand, nil
}

// wideARM64 reads a 64-bit register: addresses have no others.
func wideARM64(s string) (Reg, bool) {
	r, ok := parseReg(elf.EM_AARCH64, s)
	return r, ok && r.String() == s
}
