package attach

import (
	"errors"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// ErrOperand: the kernel side cannot fetch an argument from where its note says it is.
var ErrOperand = errors.New("unsupported location of a probe argument")

// Operand encodes for the kernel side where a probe's argument is.
func Operand(o elffile.Operand) (bpf.Operand, error) {
	k := bpf.Operand{Displacement: o.Disp, Size: o.Size}
	switch {
	case o.Kind == elffile.OperandConst:
		k.Kind = bpf.OperandConstant
		return k, nil
	case o.Kind == elffile.OperandReg:
		k.Kind = bpf.OperandRegister
	case o.Kind == elffile.OperandMem && o.Index == elffile.NoReg:
		k.Kind = bpf.OperandMemory
	default:
		return k, ErrOperand
	}
	off, ok := registerOffset(o.Reg)
	if !ok {
		return k, ErrOperand
	}
	k.Reg = off
	return k, nil
}
