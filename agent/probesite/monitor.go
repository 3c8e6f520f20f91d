package probesite

import (
	"errors"

	"golang.org/x/arch/x86/x86asm"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// ErrLightweightLocking says that compiled code takes and releases monitors in a way that is not recognised: that of a
// JDK between those whose code is known. Nothing is said of it then, as an exit taken for an enter would be counted.
var ErrLightweightLocking = errors.New("unknown form of monitor enters in compiled code (lightweight locking)")

// A MonitorEnter is where compiled code enters an object's monitor.
type MonitorEnter struct {
	// Address is that of the instruction behind the one that loads the object's mark word. Every enter passes there,
	// of an unlocked, a locked and an inflated monitor: what the compiled code does itself and what it leaves to the VM.
	Address uint64
	Object  elffile.Reg // the register that the object's address is computed from
	Disp    int64       // bytes from there to the object; 0 in all code that was seen
	Mark    elffile.Reg // the register that the mark word was loaded to
	// Lightweight is whether threads keep a stack of what they locked (JDK 21 and later); else the lock is in the frame.
	Lightweight bool
}

// firstLightweight is the first JDK that has lightweight locking, by an option; from 23 on it is the default.
const firstLightweight = 21

// maxBack is how many instructions before a compare-and-exchange its beginning is looked for: C2 of JDK 25 has 10
// between the load of the mark and the exchange.
const maxBack = 16

// MonitorEnters finds monitor enters in the code of one compiled method: code is what was read from address, and release
// the JDK's feature release. Both of HotSpot's ways are recognised, in C1's and C2's code (x86.ad,
// c1_MacroAssembler_x86.cpp and c2_MacroAssembler_x86.cpp of JDK 17 and 25):
//
//	mark = [object]; new = mark | 1; [box] = new; lock cmpxchg [object]: mark -> box          the lock is in the frame
//	mark = [object]; ...; old = mark | 1; new = mark & ^1; lock cmpxchg [object]: old -> new  lightweight
//
// A lightweight exit sets the bit in what it writes, not in what it expects: that tells the two apart. Wrappers of native
// methods, recursive enters that the compiler left out and inlined enters of other forms are not found.
// ErrLightweightLocking if there are exchanges of lightweight locking whose direction is not clear.
//
// Bytes that are no instruction are stepped over one by one: what is found behind them is right as soon as instructions
// are, since patterns are of many.
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

// enter judges the exchange that the window ends with.
func (w *window) enter(release int) (MonitorEnter, verdict) {
	x, ok := operands(w.latest[w.n-1].code)
	if !ok || x.Op != x86asm.CMPXCHG {
		return MonitorEnter{}, isOther
	}
	object, inMemory := x.Args[0].(x86asm.Mem)
	next, inRegister := x.Args[1].(x86asm.Reg)
	if !inMemory || !inRegister || object.Index != 0 || object.Segment != 0 || next < x86asm.RAX || next > x86asm.R15 {
		return MonitorEnter{}, isOther // of 32 bits, or of an array's element: no mark word
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
