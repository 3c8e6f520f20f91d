//go:build linux

package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// A function is what the verifier of Linux 6.1 counts of one: its stack, and what it calls or has a
// loop call.
type function struct {
	stack int
	calls []string
}

// functions are those of a program, the first one by its own name.
func functions(prog *ebpf.ProgramSpec) map[string]*function {
	all := map[string]*function{}
	var current *function
	for i, ins := range prog.Instructions {
		if i == 0 || ins.Symbol() != "" {
			current = &function{}
			name := ins.Symbol()
			if i == 0 {
				name = prog.Name
			}
			all[name] = current
		}
		switch {
		case ins.IsFunctionReference():
			current.calls = append(current.calls, ins.Reference())
		case ins.OpCode.Class().IsLoad() && ins.Src == asm.RFP, ins.OpCode.Class().IsStore() && ins.Dst == asm.RFP:
			current.stack = max(current.stack, -int(ins.Offset))
		case i > 0 && ins.OpCode.ALUOp() == asm.Add && ins.OpCode.Source() == asm.ImmSource:
			if before := prog.Instructions[i-1]; before.OpCode.ALUOp() == asm.Mov && before.Src == asm.RFP &&
				before.Dst == ins.Dst {
				current.stack = max(current.stack, -int(ins.Constant))
			}
		}
	}
	return all
}

// deepest is the stack of a function and of all that it calls, where that takes most.
func deepest(all map[string]*function, name string) (most int) {
	f := all[name]
	for _, called := range f.calls {
		most = max(most, deepest(all, called))
	}
	const step = 32 // newer kernels count in steps of 16, or more exactly
	return most + (max(f.stack, 1)+step-1)/step*step
}

// Linux 6.1 refuses a program whose functions take more stack together, in steps of 32 bytes. This
// machine's kernel may not.
func TestStackOfOldKernels(t *testing.T) {
	everySpec(t, func(t *testing.T, object string, spec *ebpf.CollectionSpec) {
		for name, prog := range spec.Programs {
			if n := deepest(functions(prog), prog.Name); n > 512 {
				t.Errorf("%s takes %d bytes of stack", name, n)
			}
		}
	})
}
