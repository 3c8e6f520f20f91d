package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An OperandKind is the kind of location of a probe's argument.
type OperandKind uint8

const (
	OperandBad   OperandKind = iota // not understood: Err says why
	OperandReg                      // the low Size bytes of Reg
	OperandMem                      // Size bytes at Reg + Index*Scale + Disp
	OperandConst                    // Disp
)

// An Operand is one argument of a USDT probe.
type Operand struct {
	Kind  OperandKind
	Size  int8  // 1, 2, 4 or 8 bytes, negative if the value is signed
	Reg   Reg   // NoReg for a constant; NoReg in memory operands counts as 0
	Index Reg   // NoReg if there is none
	Scale uint8 // 1, 2, 4 or 8 if there is an Index, else 0
	Disp  int64 // bytes, or the constant
	Err   error // why the operand is bad, else nil
}

// maxOperands is the largest number of arguments that sys/sdt.h has a macro for.
const maxOperands = 12

// ParseOperands parses the argument string of a probe on machine: operands separated by spaces,
// each N@OP with the size N in bytes (negative: signed) and OP as the compiler prints an operand
// for the assembler. An unknown operand is OperandBad and keeps its position, so that the others
// are still usable. Operands beyond the twelfth are not returned.
func ParseOperands(machine elf.Machine, args string) []Operand {
	var operands []Operand
	for len(operands) < maxOperands {
		var text string
		if text, args = cutOperand(args); text == "" {
			break
		}
		operand, err := parseOperand(machine, text)
		if err != nil {
			operand = Operand{Err: fmt.Errorf("operand %.64q: %w", text, err)}
		}
		operands = append(operands, operand)
	}
	return operands
}

// cutOperand cuts the first operand off args. arm64 has spaces inside of brackets: -4@[sp, 8].
func cutOperand(args string) (operand, rest string) {
	args = strings.TrimLeft(args, " ")
	depth := 0
	for i := range len(args) {
		switch args[i] {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		case ' ':
			if depth <= 0 {
				return args[:i], args[i:]
			}
		}
	}
	return args, ""
}

var (
	errOperand  = errors.New("form is not supported")
	errRegister = errors.New("register is not supported")
)

func parseOperand(machine elf.Machine, text string) (Operand, error) {
	size, op, found := strings.Cut(text, "@")
	if !found {
		return Operand{}, errors.New("has no size")
	}
	n, err := strconv.ParseInt(size, 10, 8)
	if err != nil {
		return Operand{}, fmt.Errorf("size %.16q: %w", size, errOperand) // 8f@%xmm0: a floating-point value
	}
	switch n {
	case 1, 2, 4, 8, -1, -2, -4, -8:
	default:
		return Operand{}, fmt.Errorf("size %d: %w", n, errOperand)
	}
	var operand Operand
	switch machine {
	case elf.EM_X86_64:
		operand, err = parseAMD64(op)
	case elf.EM_AARCH64:
		operand, err = parseARM64(op)
	default:
		err = fmt.Errorf("machine %v: %w", machine, errOperand)
	}
	operand.Size = int8(n)
	return operand, err
}

// parseNumber reads a decimal, octal (0...) or hexadecimal (0x...) number as assemblers do; an
// expression or a symbol is an error. The upper half of the unsigned range is read as two's
// complement.
func parseNumber(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, errOperand
	}
	return int64(n), nil
}
