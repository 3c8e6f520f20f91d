package attach

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// ErrOperand: the kernel side cannot fetch an argument from the location in its note.
var ErrOperand = errors.New("unsupported location of a probe argument")

// Operand encodes the location of a probe's argument for the kernel side.
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

// probedValues encodes the values that spec reads at a site for the kernel side. An error names the
// value that cannot be read there.
func probedValues(spec valueprobe.Spec, site probesite.Site) (bpf.ProbedValues, error) {
	var k bpf.ProbedValues
	if len(spec.Values) > len(k.Values) {
		return k, fmt.Errorf("%d values: a probe can read %d", len(spec.Values), len(k.Values))
	}
	k.Count = uint32(len(spec.Values))
	at := termsOf(spec, site)
	share := uint8(0)
	for i := len(spec.Values) - 1; i >= 0; i-- {
		v, err := at.value(spec.Values[i])
		if err != nil {
			return k, fmt.Errorf("value %v: %w", spec.Values[i], err)
		}
		if spec.Values[i].Form.IsText() {
			share++
			v.Share = share
		}
		k.Values[i] = v
	}
	return k, nil
}

// terms are the locations of a spec's terms at one site.
type terms struct {
	args    []elffile.Operand
	missing error // why there are not more
}

func termsOf(spec valueprobe.Spec, site probesite.Site) terms {
	if spec.Name != "" {
		return terms{site.Args, fmt.Errorf("the probe has %d operands", len(site.Args))}
	}
	if site.Clone != "" && site.Function != spec.Symbol {
		return terms{missing: fmt.Errorf("%s is a copy that the compiler made of the function, and its arguments may "+
			"be in other registers: "+
			"read registers (rdi, x0), or give the full name of one copy", site.Function)}
	}
	args := make([]elffile.Operand, len(argumentRegisters))
	for i, r := range argumentRegisters {
		args[i] = elffile.Operand{Kind: elffile.OperandReg, Size: 8, Reg: r}
	}
	return terms{args, fmt.Errorf("only the first %d arguments of a function are in registers: "+
		"read the others through the stack pointer", len(args))}
}

func (t *terms) value(v valueprobe.Value) (k bpf.ProbedValue, err error) {
	if k.Base, err = t.term(v.Base); err != nil {
		return k, err
	}
	k.Size = 8
	switch {
	case v.Form == valueprobe.Number && v.Size != 0:
		k.Size = v.Size
	case v.Form == valueprobe.Number && v.Followed == 0:
		k.Size = k.Base.Size
	}
	k.Followed = uint8(copy(k.Offsets[:], v.Follow[:v.Followed]))
	k.Offset = v.Offset
	k.Form = kernelForms[v.Form]
	if v.Length == (valueprobe.Term{}) {
		return k, nil
	}
	if k.Length, err = t.term(v.Length); err != nil {
		return k, fmt.Errorf("length: %w", err)
	}
	return k, nil
}

var kernelForms = [...]uint8{
	valueprobe.Number: bpf.ValueNumber, valueprobe.Text: bpf.ValueText, valueprobe.Symbol: bpf.ValueSymbol,
	valueprobe.Klass: bpf.ValueKlass, valueprobe.Class: bpf.ValueClass,
}

func (t *terms) term(term valueprobe.Term) (bpf.ValueOperand, error) {
	switch {
	case term.Arg > 0 && int(term.Arg) <= len(t.args):
		return valueOperand(t.args[term.Arg-1])
	case term.Arg > 0:
		return bpf.ValueOperand{}, t.missing
	case term.Reg != elffile.NoReg:
		return valueOperand(elffile.Operand{Kind: elffile.OperandReg, Size: 8, Reg: term.Reg})
	}
	return bpf.ValueOperand{Kind: bpf.OperandConstant, Size: 8, Displacement: int64(term.Number)}, nil
}

// valueOperand encodes the location of an operand for the kernel side, in every form that notes
// have.
func valueOperand(o elffile.Operand) (bpf.ValueOperand, error) {
	k := bpf.ValueOperand{Displacement: o.Disp, Size: o.Size}
	switch o.Kind {
	case elffile.OperandConst:
		k.Kind = bpf.OperandConstant
		return k, nil
	case elffile.OperandReg:
		k.Kind, k.Displacement = bpf.OperandRegister, 0
	case elffile.OperandMem:
		k.Kind, k.Scale = bpf.OperandMemory, o.Scale
	default:
		return k, errors.Join(ErrOperand, o.Err)
	}
	var known, indexed bool
	if k.Reg, known = registerOffset(o.Reg); !known {
		if o.Kind != elffile.OperandMem || o.Reg != elffile.NoReg {
			return k, fmt.Errorf("this machine has no register %v: %w", o.Reg, ErrOperand)
		}
		k.Absolute = 1
	}
	if o.Index != elffile.NoReg {
		if k.Index, indexed = registerOffset(o.Index); !indexed {
			return k, fmt.Errorf("this machine has no register %v: %w", o.Index, ErrOperand)
		}
	}
	return k, nil
}
