package probesite

import (
	"errors"

	"golang.org/x/arch/x86/x86asm"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// ErrLightweightLocking says that compiled code takes and releases monitors in an unknown way: that
// of a JDK between those whose code is known. Then nothing is reported, as an exit taken for an
// enter would be counted.
var ErrLightweightLocking = errors.New("unknown form of monitor enters in compiled code (lightweight locking)")

// A MonitorEnter is a place where compiled code enters an object's monitor.
type MonitorEnter struct {
	// Address is that of the instruction after the load of the object's mark word. Every enter
	// passes it, of an unlocked, a locked or an inflated monitor, whether the compiled code or the
	// VM handles it.
	Address uint64
	Object  elffile.Reg // the register that the object's address is computed from
	Disp    int64       // bytes from there to the object; 0 in all code seen so far
	Mark    elffile.Reg // the register that holds the mark word
	// Lightweight says that threads keep a stack of their locks (JDK 21 and later); otherwise the
	// lock is in the frame.
	Lightweight bool
}

// firstLightweight is the first JDK that has lightweight locking, by an option; from 23 on it is
// the default.
const firstLightweight = 21

// maxBack is how many instructions before a compare-and-exchange its beginning is searched for: C2
// of JDK 25 has 10 between the load of the mark and the exchange.
const maxBack = 16

// MonitorEnters finds monitor enters in the code of one compiled method: code was read from
// address, and release is the JDK's feature release. Both ways of HotSpot are recognised, in C1's
// and C2's code (x86.ad, c1_MacroAssembler_x86.cpp and c2_MacroAssembler_x86.cpp of JDK 17 and 25):
//
//	mark = [object]; new = mark | 1; [box] = new; lock cmpxchg [object]: mark -> box          the lock is in the frame
//	mark = [object]; ...; old = mark | 1; new = mark & ^1; lock cmpxchg [object]: old -> new  lightweight
//
// A lightweight exit sets the bit in the written value, not in the expected one: that distinguishes
// the two. Wrappers of native methods, recursive enters that the compiler left out and inlined
// enters of other forms are not found. ErrLightweightLocking if there are exchanges of lightweight
// locking whose direction is unclear.
//
// Bytes that are not an instruction are skipped one by one: decoding resynchronizes, and patterns
// consist of many instructions.
func MonitorEnters(code []byte, address uint64, release int) ([]MonitorEnter, error) {
	var enters []MonitorEnter
	var w window
	for at := 0; at < len(code); {
		i, err := Decode(code[at:])
		if err != nil {
			at++
			w.clear()
			continue
		}
		w.push(instructionAt{address + uint64(at), code[at : at+i.Len], i.Kind})
		at += i.Len
		if i.encoding.prefixes&prefixLock == 0 || i.encoding.opcodeMap != map0F || i.encoding.opcode != cmpxchg {
			continue
		}
		enter, verdict := w.enter(release)
		switch verdict {
		case isEnter:
			enters = append(enters, enter)
		case isUnclear:
			return nil, ErrLightweightLocking
		}
	}
	return enters, nil
}

const cmpxchg = 0xb1 // behind 0f, of 32 or 64 bits

type verdict uint8

const (
	isOther verdict = iota // an exit, or no locking at all
	isEnter
	isUnclear
)

type instructionAt struct {
	address uint64
	code    []byte
	kind    Kind
}

// A window has the latest instructions, the last one at the end.
type window struct {
	latest [maxBack + 1]instructionAt
	n      int
}

func (w *window) clear() { w.n = 0 }

func (w *window) push(i instructionAt) {
	if w.n == len(w.latest) {
		copy(w.latest[:], w.latest[1:])
		w.n--
	}
	w.latest[w.n] = i
	w.n++
}

// enter judges the exchange at the end of the window.
func (w *window) enter(release int) (MonitorEnter, verdict) {
	x, ok := operands(w.latest[w.n-1].code)
	if !ok || x.Op != x86asm.CMPXCHG {
		return MonitorEnter{}, isOther
	}
	object, inMemory := x.Args[0].(x86asm.Mem)
	next, inRegister := x.Args[1].(x86asm.Reg)
	if !inMemory || !inRegister || object.Index != 0 || object.Segment != 0 || next < x86asm.RAX || next > x86asm.R15 {
		return MonitorEnter{}, isOther // The operand has 32 bits, or is an array's element: it is not a mark word.
	}
	l := lock{object: object, next: next}
	for n := w.n - 2; n >= 0; n-- {
		behind := w.latest[n+1].address
		switch i := &w.latest[n]; {
		case i.kind == CondJump:
		case l.loads(i.code):
			return l.enter(behind), l.verdict(release)
		case !l.before(i.code):
			n = 0
		}
	}
	if l.unclear(release) {
		return MonitorEnter{}, isUnclear
	}
	return MonitorEnter{}, isOther
}

// A lock is what is known of an exchange of an object's mark word, from reading the code backwards.
type lock struct {
	object x86asm.Mem // the exchanged word
	next   x86asm.Reg // the written value; the expected one is in rax

	mark     x86asm.Reg // the source of rax, 0 while unknown
	expected bool       // bit 0 is set in the expected value
	set      bool       // bit 0 is set in the written value
	cleared  bool       // bit 0 is cleared in the written value
	boxed    bool       // the expected value is stored at the written address: the lock in the frame
	stacked  bool       // the thread's stack of locks is compared with the object
}

// thread is the register of HotSpot's current thread on x86-64.
const thread = x86asm.R15

// markRegister is the register of the mark, as far as known.
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

// before handles the instruction before those seen so far. It returns false if earlier ones do not
// matter: if the mark or the object's register get their values from elsewhere, or code is not
// straight-line.
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

// unclear reports whether this is an exchange of lightweight locking, but neither a known enter nor
// a known exit. An exit sets the bit in the written value and not in the expected one.
func (l *lock) unclear(release int) bool {
	exit := l.set && !l.expected
	return release >= firstLightweight && !exit && !l.boxed && (l.stacked || l.expected)
}

// bit0 reports whether a is the constant with which or sets bit 0 (1), or and clears it (-2).
func bit0(a x86asm.Arg, want x86asm.Imm) bool {
	imm, ok := a.(x86asm.Imm)
	return ok && imm == want
}

// memory returns the operand in memory.
func memory(args x86asm.Args) (x86asm.Mem, bool) {
	for _, a := range args[:2] {
		if m, ok := a.(x86asm.Mem); ok {
			return m, true
		}
	}
	return x86asm.Mem{}, false
}

func holds(args x86asm.Args, r x86asm.Reg) bool { return args[0] == r || args[1] == r }
