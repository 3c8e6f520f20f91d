package attach

import (
	"debug/elf"
	"runtime"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

func TestOperand(t *testing.T) {
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	for _, test := range []struct {
		arch, text string
		want       bpf.Operand // the zero value: an error
	}{
		{"amd64", "8@%rdi", bpf.Operand{Kind: bpf.OperandRegister, Reg: 112, Size: 8}},
		{"amd64", "-4@%eax", bpf.Operand{Kind: bpf.OperandRegister, Reg: 80, Size: -4}},
		{"amd64", "8@-8(%rsp)", bpf.Operand{Kind: bpf.OperandMemory, Reg: 152, Size: 8, Displacement: -8}},
		{"amd64", "8@$7", bpf.Operand{Kind: bpf.OperandConstant, Size: 8, Displacement: 7}},
		{"amd64", "8@(%rax,%rbx,8)", bpf.Operand{}},
		{"amd64", "8@symbol(%rip)", bpf.Operand{}},
		{"arm64", "8@x1", bpf.Operand{Kind: bpf.OperandRegister, Reg: 8, Size: 8}},
		{"arm64", "8@[sp, 16]", bpf.Operand{Kind: bpf.OperandMemory, Reg: 248, Size: 8, Displacement: 16}},
		{"arm64", "8@[x19, x20]", bpf.Operand{}},
	} {
		if test.arch != runtime.GOARCH {
			continue
		}
		got, err := Operand(elffile.ParseOperands(machine, test.text)[0])
		if failed := test.want.Kind == 0; (err != nil) != failed || !failed && got != test.want {
			t.Errorf("%s: %+v, %v, want %+v", test.text, got, err, test.want)
		}
	}
}
