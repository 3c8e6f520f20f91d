package probesite

import "golang.org/x/arch/x86/x86asm"

// A lock is what is known of an exchange of an object's mark word, from reading backwards from it.
type lock struct {
	object x86asm.Mem // what is exchanged
	next   x86asm.Reg // with this; what is expected is in rax

	mark     x86asm.Reg // where rax is copied from, 0 while it is not
	expected bool       // bit 0 is set in what is expected
	set      bool       // bit 0 is set in what is written
	cleared  bool       // bit 0 is cleared in what is written
	boxed    bool       // what is expected is stored at the address that is written: the lock in the frame
	stacked  bool       // the thread's stack of locks is compared with the object
}

// thread is where HotSpot keeps the current thread on x86-64.
const thread = x86asm.R15

// markRegister is the one that the mark is in, as far as that is seen.
func (l *lock) markRegister() x86asm.Reg {
	if l.mark != 0 {
		return l.mark
	}
	return x86asm.RAX
}

// loads reports whether an instruction is the load of the mark.
func (l *lock) loads(code []byte) bool {
	i, ok := operands(code)
	return ok && i.Op == x86asm.MOV && i.Args[0] == l.markRegister() && i.Args[1] == l.object
}

// before takes the instruction that stands before those seen so far. It reports false if what is before that does not
// matter: where the mark or the object's register get their values from elsewhere, or where code is not straight.
func (l *lock) before(code []byte) bool {
	i, ok := operands(code)
	if !ok {
		return false
	}
	switch i.Op {
	case x86asm.OR:
		if bit0(i.Args[1], 1) {
			l.expected = l.expected || i.Args[0] == x86asm.RAX
			l.set = l.set || i.Args[0] == l.next
		}
		return true
	case x86asm.AND:
		l.cleared = l.cleared || i.Args[0] == l.next && bit0(i.Args[1], -2)
		return true
	case x86asm.CMP:
		m, ok := memory(i.Args)
		l.stacked = l.stacked || ok && m.Base == thread && m.Index != 0 && holds(i.Args, l.object.Base)
		return true
	case x86asm.MOV:
		if from, ok := i.Args[1].(x86asm.Reg); ok && i.Args[0] == x86asm.RAX && l.mark == 0 {
			l.mark = from
			return true
		}
		if to, ok := i.Args[0].(x86asm.Mem); ok && i.Args[1] == x86asm.RAX {
			l.boxed = l.boxed || to.Base == l.next && to.Index == 0 && to.Disp == 0
		}
	}
	e := effectOf(code)
	return e != anything && e.writes&l.kept() == 0
}

// kept are the registers that must have the same values from the load to the exchange.
func (l *lock) kept() registers {
	var s registers
	for _, r := range []x86asm.Reg{l.object.Base, l.markRegister()} {
		if r, ok := registerOf(r); ok {
			s |= set(r)
		}
	}
	return s
}

func (l *lock) enter(address uint64) MonitorEnter {
	object, _ := registerOf(l.object.Base)
	mark, _ := registerOf(l.markRegister())
	return MonitorEnter{Address: address, Object: object, Disp: l.object.Disp, Mark: mark, Lightweight: !l.boxed}
}

// verdict judges the exchange once the mark's load is found.
func (l *lock) verdict(release int) verdict {
	inFrame := l.expected && l.boxed && !l.set && !l.cleared
	lightweight := l.expected && l.cleared && l.stacked && !l.boxed && !l.set && release >= firstLightweight
	switch {
	case inFrame, lightweight:
		return isEnter
	case l.unclear(release):
		return isUnclear
	}
	return isOther
}

// unclear reports whether this is an exchange of lightweight locking, but neither an enter nor an exit that is known.
// An exit sets the bit in what is written and not in what is expected.
func (l *lock) unclear(release int) bool {
	exit := l.set && !l.expected
	return release >= firstLightweight && !exit && !l.boxed && (l.stacked || l.expected)
}

// bit0 reports whether a is the constant with which or sets bit 0 (1), or and clears it (-2).
func bit0(a x86asm.Arg, want x86asm.Imm) bool {
	imm, ok := a.(x86asm.Imm)
	return ok && imm == want
}

// memory returns the operand that is in memory.
func memory(args x86asm.Args) (x86asm.Mem, bool) {
	for _, a := range args[:2] {
		if m, ok := a.(x86asm.Mem); ok {
			return m, true
		}
	}
	return x86asm.Mem{}, false
}

func holds(args x86asm.Args, r x86asm.Reg) bool { return args[0] == r || args[1] == r }
