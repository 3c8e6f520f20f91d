package elffile

import (
	"debug/elf"
	"strings"
	"testing"
)

func TestParseOperands(t *testing.T) {
	for _, test := range []struct {
		machine elf.Machine
		text    string
		want    Operand // Err is not compared
	}{
		{elf.EM_X86_64, "8@%rax", Operand{Kind: OperandReg, Size: 8, Reg: RAX}},
		{elf.EM_X86_64, "-4@%ecx", Operand{Kind: OperandReg, Size: -4, Reg: RCX}},
		{elf.EM_X86_64, "2@%si", Operand{Kind: OperandReg, Size: 2, Reg: RSI}},
		{elf.EM_X86_64, "1@%cl", Operand{Kind: OperandReg, Size: 1, Reg: RCX}},
		{elf.EM_X86_64, "1@%dil", Operand{Kind: OperandReg, Size: 1, Reg: RDI}},
		{elf.EM_X86_64, "-4@%r14d", Operand{Kind: OperandReg, Size: -4, Reg: R14}},
		{elf.EM_X86_64, "1@%r8b", Operand{Kind: OperandReg, Size: 1, Reg: R8}},
		{elf.EM_X86_64, "8@-56(%rbp)", Operand{Kind: OperandMem, Size: 8, Reg: RBP, Disp: -56}},
		{elf.EM_X86_64, "-4@4(%rsp)", Operand{Kind: OperandMem, Size: -4, Reg: RSP, Disp: 4}},
		{elf.EM_X86_64, "8@(%r12)", Operand{Kind: OperandMem, Size: 8, Reg: R12}},
		{elf.EM_X86_64, "8@0x10(%rdi)", Operand{Kind: OperandMem, Size: 8, Reg: RDI, Disp: 16}},
		{elf.EM_X86_64, "8@(%rax,%rbx,8)", Operand{Kind: OperandMem, Size: 8, Reg: RAX, Index: RBX, Scale: 8}},
		{elf.EM_X86_64, "8@-8(%rax,%rbx)", Operand{Kind: OperandMem, Size: 8, Reg: RAX, Index: RBX, Scale: 1,
			Disp: -8}},
		{elf.EM_X86_64, "4@16(,%r9,4)", Operand{Kind: OperandMem, Size: 4, Index: R9, Scale: 4, Disp: 16}},
		{elf.EM_X86_64, "1@$0", Operand{Kind: OperandConst, Size: 1}},
		{elf.EM_X86_64, "-4@$-1", Operand{Kind: OperandConst, Size: -4, Disp: -1}},
		{elf.EM_X86_64, "8@$0xffffffffffffffff", Operand{Kind: OperandConst, Size: 8, Disp: -1}},
		{elf.EM_AARCH64, "8@x0", Operand{Kind: OperandReg, Size: 8, Reg: X0}},
		{elf.EM_AARCH64, "-4@w21", Operand{Kind: OperandReg, Size: -4, Reg: X21}},
		{elf.EM_AARCH64, "8@sp", Operand{Kind: OperandReg, Size: 8, Reg: SP}},
		{elf.EM_AARCH64, "4@wzr", Operand{Kind: OperandConst, Size: 4}},
		{elf.EM_AARCH64, "4@5", Operand{Kind: OperandConst, Size: 4, Disp: 5}},
		{elf.EM_AARCH64, "-4@-1", Operand{Kind: OperandConst, Size: -4, Disp: -1}},
		{elf.EM_AARCH64, "8@[x0]", Operand{Kind: OperandMem, Size: 8, Reg: X0}},
		{elf.EM_AARCH64, "-4@[sp, 8]", Operand{Kind: OperandMem, Size: -4, Reg: SP, Disp: 8}},
		{elf.EM_AARCH64, "8@[x29, -16]", Operand{Kind: OperandMem, Size: 8, Reg: X29, Disp: -16}},
		{elf.EM_AARCH64, "8@[x19, x20]", Operand{Kind: OperandMem, Size: 8, Reg: X19, Index: X20, Scale: 1}},
		{elf.EM_AARCH64, "8@[x19, x20, lsl 3]", Operand{Kind: OperandMem, Size: 8, Reg: X19, Index: X20, Scale: 8}},

		{elf.EM_X86_64, "4@counter(%rip)", Operand{}},
		{elf.EM_X86_64, "8@%fs:16", Operand{}},
		{elf.EM_X86_64, "1@%ah", Operand{}},
		{elf.EM_X86_64, "8f@%xmm0", Operand{}},
		{elf.EM_X86_64, "8@%xmm0", Operand{}},
		{elf.EM_X86_64, "8@%r16", Operand{}},
		{elf.EM_X86_64, "8@%x0", Operand{}},
		{elf.EM_X86_64, "3@%rax", Operand{}},
		{elf.EM_X86_64, "-128@%rax", Operand{}},
		{elf.EM_X86_64, "%rax", Operand{}},
		{elf.EM_X86_64, "8@", Operand{}},
		{elf.EM_X86_64, "8@$", Operand{}},
		{elf.EM_X86_64, "8@$main", Operand{}},
		{elf.EM_X86_64, "8@()", Operand{}},
		{elf.EM_X86_64, "8@8(%rax", Operand{}},
		{elf.EM_X86_64, "8@(%eax)", Operand{}},
		{elf.EM_X86_64, "8@(%rax,%rsp,8)", Operand{}},
		{elf.EM_X86_64, "8@(%rax,%rbx,3)", Operand{}},
		{elf.EM_X86_64, "8@(%rax,%rbx,8,1)", Operand{}},
		{elf.EM_AARCH64, "8@[x0", Operand{}},
		{elf.EM_AARCH64, "8@[w0]", Operand{}},
		{elf.EM_AARCH64, "8@[x0, 8, lsl 3]", Operand{}},
		{elf.EM_AARCH64, "8@[x0, x1, lsl 4]", Operand{}},
		{elf.EM_AARCH64, "8@[x0, x1, sxtw 3]", Operand{}},
		{elf.EM_AARCH64, "8@x31", Operand{}},
		{elf.EM_RISCV, "8@a0", Operand{}},
	} {
		operands := ParseOperands(test.machine, test.text)
		if len(operands) != 1 {
			t.Errorf("%s: %d operands", test.text, len(operands))
			continue
		}
		got := operands[0]
		if (got.Err != nil) != (got.Kind == OperandBad) {
			t.Errorf("%s: kind %d with error %v", test.text, got.Kind, got.Err)
		}
		if got.Err = nil; got != test.want {
			t.Errorf("%s: %+v, want %+v", test.text, got, test.want)
		}
	}
}

func TestParseOperandsSplits(t *testing.T) {
	for args, want := range map[string]int{
		"":                                       0,
		"   ":                                    0,
		"8@x0 -4@[sp, 8]  8@[x0, x1, lsl 3] 4@5": 4,
		"8@[x0 4@x1":                             1, // an open bracket takes the rest with it
		"8@] 4@x1":                               2,
		strings.Repeat("8@x0 ", 20):              maxOperands,
	} {
		if got := ParseOperands(elf.EM_AARCH64, args); len(got) != want {
			t.Errorf("%q: %d operands, want %d", args, len(got), want)
		}
	}
}

func TestRegNames(t *testing.T) {
	for r := RAX; r <= SP; r++ {
		machine := elf.EM_X86_64
		if r >= X0 {
			machine = elf.EM_AARCH64
		}
		if got, ok := parseReg(machine, r.String()); !ok || got != r {
			t.Errorf("%v parses as %v, %t", r, got, ok)
		}
	}
	if got := (SP + 1).String(); got != "invalid" {
		t.Errorf("register past the last is %q", got)
	}
}

// FuzzOperand parses arbitrary argument strings; an operand is good or has an error, and states a
// possible size.
func FuzzOperand(f *testing.F) {
	for _, args := range []string{"8@%rax -4@-8(%rbp) 1@$0", "8@(%rax,%rbx,8)", "4@x(%rip)",
		"8@[sp, 8] 8@[x0, x1, lsl 3]"} {
		f.Add(args, true)
		f.Add(args, false)
	}
	f.Fuzz(func(t *testing.T, args string, amd64 bool) {
		machine := elf.EM_AARCH64
		if amd64 {
			machine = elf.EM_X86_64
		}
		operands := ParseOperands(machine, args)
		if len(operands) > maxOperands {
			t.Errorf("%d operands", len(operands))
		}
		for _, o := range operands {
			if (o.Kind == OperandBad) != (o.Err != nil) || o.Err == nil && (o.Size == 0 || o.Size > 8 || o.Size < -8) {
				t.Errorf("%q: %+v", args, o)
			}
			if (o.Index == NoReg) != (o.Scale == 0) {
				t.Errorf("%q: index %v with scale %d", args, o.Index, o.Scale)
			}
		}
	})
}
