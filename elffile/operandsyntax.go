package elffile

import (
	"debug/elf"
	"strings"
)

// parseAMD64 reads an operand in AT&T syntax: %reg, $constant, or disp(base,index,scale) with any
// of its parts missing. Addresses that need a symbol or a segment register are refused: name(%rip),
// %fs:8.
func parseAMD64(op string) (Operand, error) {
	if reg, found := strings.CutPrefix(op, "%"); found {
		r, ok := parseReg(elf.EM_X86_64, reg)
		if !ok {
			return Operand{}, errRegister
		}
		return Operand{Kind: OperandReg, Reg: r}, nil
	}
	if number, found := strings.CutPrefix(op, "$"); found {
		n, err := parseNumber(number)
		return Operand{Kind: OperandConst, Disp: n}, err
	}
	disp, address, found := strings.Cut(op, "(")
	address, closed := strings.CutSuffix(address, ")")
	if !found || !closed {
		return Operand{}, errOperand
	}
	operand := Operand{Kind: OperandMem}
	if disp != "" {
		n, err := parseNumber(disp)
		if err != nil {
			return Operand{}, err
		}
		operand.Disp = n
	}
	parts := strings.Split(address, ",")
	if len(parts) > 3 {
		return Operand{}, errOperand
	}
	var err error
	if operand.Reg, err = addressReg(parts[0]); err != nil {
		return Operand{}, err
	}
	if len(parts) == 1 {
		if operand.Reg == NoReg {
			return Operand{}, errOperand
		}
		return operand, nil
	}
	// rsp cannot be an index: its number means "none" in the instruction.
	if operand.Index, err = addressReg(parts[1]); err != nil || operand.Index == NoReg || operand.Index == RSP {
		return Operand{}, errOperand
	}
	operand.Scale = 1
	if len(parts) == 3 {
		switch parts[2] {
		case "1", "2", "4", "8":
			operand.Scale = parts[2][0] - '0'
		default:
			return Operand{}, errOperand
		}
	}
	return operand, nil
}

// addressReg reads a register of an address, which must be a whole one; none is NoReg.
func addressReg(s string) (Reg, error) {
	if s == "" {
		return NoReg, nil
	}
	name, found := strings.CutPrefix(s, "%")
	r, ok := parseReg(elf.EM_X86_64, name)
	if !found || !ok || r.String() != name {
		return NoReg, errRegister
	}
	return r, nil
}

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
