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
