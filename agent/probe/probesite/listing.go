package probesite

import (
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// A listing is a function's code, disassembled from its first byte on.
type listing struct {
	start uint64
	code  []byte
	at    []uint32        // offsets of the instructions, ascending
	kinds []Kind          // kinds of the instructions
	joins map[uint32]bool // offsets of branch targets within this function
	// cut is why instructions end before the code does; nil if they do not. Otherwise joins may
	// lack some.
	cut error
}

// list reads and disassembles a function. Targets of jumps through a table are unknown: they are
// the code of a case, which is neither a function's first lines nor a test of a call's result.
func (f *Finder) list(fn function) (*listing, error) {
	code, err := f.code(fn.start, fn.end-fn.start)
	if err != nil {
		return nil, err
	}
	l := &listing{start: fn.start, code: code, joins: map[uint32]bool{}}
	for at := 0; at < len(code); {
		i, err := Decode(code[at:])
		if err != nil {
			l.cut = err // data between instructions, as in hand-written assembly
			break
		}
		l.at, l.kinds = append(l.at, uint32(at)), append(l.kinds, i.Kind)
		if to, ok := i.Branch(fn.start + uint64(at)); ok && to-fn.start < uint64(len(code)) {
			l.joins[uint32(to-fn.start)] = true
		}
		at += i.Len
	}
	return l, nil
}

// bytes returns the code from instruction n on.
func (l *listing) bytes(n int) []byte { return l.code[l.at[n]:] }

// address returns the address of instruction n.
func (l *listing) address(n int) uint64 { return l.start + uint64(l.at[n]) }

// joined reports whether a branch goes to one of the instructions from..to.
func (l *listing) joined(from, to int) bool {
	for n := from; n <= to; n++ {
		if l.joins[l.at[n]] {
			return true
		}
	}
	return false
}

// end is the offset after the last decoded instruction.
func (l *listing) end() uint64 {
	if len(l.at) == 0 {
		return 0
	}
	last := l.at[len(l.at)-1]
	i, _ := Decode(l.code[last:])
	return uint64(last) + uint64(i.Len)
}

// callee returns the target of a direct call at instruction n.
func (l *listing) callee(n int) (uint64, bool) {
	if l.kinds[n] != Call {
		return 0, false
	}
	i, err := Decode(l.bytes(n))
	if err != nil {
		return 0, false
	}
	return i.Branch(l.address(n))
}

// begins reports whether an instruction begins at addr.
func (l *listing) begins(addr uint64) bool {
	_, ok := slices.BinarySearch(l.at, uint32(addr-l.start))
	return ok && addr >= l.start
}

// setBefore returns the last instruction before n that writes to a register, if it is near, in
// straight-line code, and after every call.
func (l *listing) setBefore(n int, r elffile.Reg) (x86asm.Inst, bool) {
	for at := n - 1; at >= 0 && n-at <= maxAhead && !l.joins[l.at[at+1]]; at-- {
		e := effectOf(l.bytes(at))
		if e.leaves {
			return x86asm.Inst{}, false
		}
		if e.writes&set(r) != 0 {
			return operands(l.bytes(at))
		}
	}
	return x86asm.Inst{}, false
}

// isCopy reports whether r is, at instruction n, a copy of what is kept elsewhere: in a register,
// or in memory.
func (l *listing) isCopy(n int, r elffile.Reg, kept x86asm.Arg) bool {
	i, ok := l.setBefore(n, r)
	if !ok || i.Op != x86asm.MOV || i.Args[1] != kept {
		return false
	}
	to, ok := i.Args[0].(x86asm.Reg)
	return ok && to >= x86asm.RAX && to <= x86asm.R15
}

// isFlag reports whether r is, at instruction n, the result of a comparison: 0 or 1.
func (l *listing) isFlag(n int, r elffile.Reg) bool {
	i, ok := l.setBefore(n, r)
	if !ok {
		return false
	}
	from, ok := i.Args[1].(x86asm.Reg)
	return i.Op == x86asm.SETNE || i.Op == x86asm.MOVZX && ok && from >= x86asm.AL && from <= x86asm.R15B
}

// resultOfCall reports whether rax is, at instruction n, the result of the call before it.
func (l *listing) resultOfCall(n int) bool {
	for at := n - 1; at >= 0 && n-at <= maxAhead && !l.joins[l.at[at+1]]; at-- {
		if l.kinds[at] == Call {
			return true
		}
		if e := effectOf(l.bytes(at)); e.leaves || e.writes&resultRegister != 0 {
			return false
		}
	}
	return false
}

// copyOf returns where the function keeps an argument: a register or memory to which its first
// lines copy it. It returns nil if they do not.
func (l *listing) copyOf(argument x86asm.Reg) x86asm.Arg {
	const first = 32 // instructions
	r, _ := registerOf(argument)
	for n := range min(first, len(l.at)) {
		if i, ok := operands(l.bytes(n)); ok && i.Op == x86asm.MOV && i.Args[1] == argument {
			return i.Args[0]
		}
		if l.kinds[n] != CondJump && l.kinds[n] != Push && effectOf(l.bytes(n)).writes&set(r) != 0 {
			return nil
		}
	}
	return nil
}

// toggled returns the registers relative to which the function clears a byte and sets the same one
// to 1 elsewhere.
func (l *listing) toggled() (bases []x86asm.Reg) {
	cleared, set := map[x86asm.Mem]bool{}, map[x86asm.Mem]bool{}
	for n := range l.at {
		i, ok := operands(l.bytes(n))
		if !ok || i.Op != x86asm.MOV || i.MemBytes != 1 {
			continue
		}
		m, inMemory := i.Args[0].(x86asm.Mem)
		if !inMemory || m.Index != 0 || m.Base == x86asm.RBP || m.Base == x86asm.RSP {
			continue
		}
		switch i.Args[1] {
		case x86asm.Imm(0):
			cleared[m] = true
		case x86asm.Imm(1):
			set[m] = true
		}
	}
	for m := range cleared {
		if set[m] && !slices.Contains(bases, m.Base) {
			bases = append(bases, m.Base)
		}
	}
	return bases
}
