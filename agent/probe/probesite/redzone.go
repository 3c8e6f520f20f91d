package probesite

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// redZone is how many bytes below the stack pointer may hold variables of a function that calls
// nothing (System V ABI for AMD64, section 3.2.2). Neither signals nor the kernel write there. A
// call does: it pushes its return address.
const redZone = 128

// ErrRedZone: there is a NOP of several bytes at a place, and the function around it may have
// variables in its red zone. Kernels from 6.18 on replace such a NOP by a call once a probe there
// is hit.
var ErrRedZone = errors.New("a probe there could overwrite variables of the program")

// NeedsOwnStack reports whether the instruction does nothing and has several bytes: a kernel may
// replace it by a call once it is probed. Which ones kernels replace has changed: first the NOP of
// 5 bytes (6.18), then all of 5 bytes that insn_is_nop knows (arch/x86/lib/insn-eval.c), later one
// NOP of 10 bytes, whose replacement spares the red zone. The Kind is not sufficient: some of them
// are jumps, and those with certain prefixes are refused by kernels that do not replace them.
func (i *Instruction) NeedsOwnStack() bool {
	e := &i.encoding
	switch {
	case e.extended || i.Len == 1:
		return false
	case e.opcodeMap == map0F:
		return e.opcode == 0x1f && e.reg() == 0
	case e.opcodeMap != mapOneByte:
		return false
	}
	switch e.opcode {
	case 0x90:
		return e.rex&1 == 0 && e.prefixes&prefixRep == 0 // else xchg %rax,%r8, or pause
	case 0x89: // mov of a register to itself
		return e.modRM>>6 == 3 && e.reg() == e.modRM&7 && e.rex>>2&1 == e.rex&1
	// This is a lea of a register without a displacement, which is the register itself in the form
	// that compilers write.
	case 0x8d:
		return e.modRM>>6 != 0 && e.memory.displacement == 0
	case 0xe9, 0xeb: // jmp to the next instruction
		return e.immediate == 0
	}
	return false
}

// OwnsStack proves that the code at addr keeps nothing below the stack pointer, or fails with
// ErrRedZone. Other errors mean that the file could not be read.
//
// It relies on this: compilers use the red zone for all of a function or for nothing of it, and
// only in functions that call nothing. For gcc a function with any call, even in a part that is
// rarely or never reached, or to a function that does not return, is no leaf (leaf_function_p;
// jumps to another function's beginning do not count), and only leaves have a red zone
// (ix86_compute_frame_layout). For LLVM the same follows from MachineFrameInfo::adjustsStack
// (X86FrameLowering). If the prologue comes late (shrink-wrapping), nothing is on the stack before
// it. So a call in the same function is sufficient.
//
// A call that the compiler does not know of proves nothing: -mfentry puts one before the first
// instruction, code that takes its own address calls the next instruction, and inline assembly may
// call after stepping over the red zone. The first two are recognised. For the third, no
// instruction of the function may use memory below the stack pointer. That alone would not be a
// proof, as addresses can be in any register.
func (f *Finder) OwnsStack(addr uint64) error {
	if err := f.needX86(); err != nil {
		return err
	}
	around, err := f.file.FunctionAround(addr)
	if errors.Is(err, elffile.ErrNotFound) {
		return fmt.Errorf("the bounds of its function are unknown (no symbols, no .eh_frame): %w", ErrRedZone)
	}
	if err != nil {
		return err
	}
	name := "its function"
	if symbol := f.around(addr); symbol != "" {
		name = "function " + symbol
	}
	if around.End-around.Start > maxFunction {
		return fmt.Errorf("%s has more than %d bytes: %w", name, maxFunction, ErrRedZone)
	}
	l, err := f.list(function{start: around.Start, end: around.End})
	if err != nil {
		return err
	}
	if reason := l.doubt(addr); reason != "" {
		return fmt.Errorf("%s %s: %w", name, reason, ErrRedZone)
	}
	return nil
}

// doubt says why the function may keep something below the stack pointer, "" if it does not.
func (l *listing) doubt(addr uint64) string {
	if l.cut != nil {
		return fmt.Sprintf("cannot be decoded (%v)", l.cut)
	}
	calls, on := false, false
	depth := l.frameDepth()
	for n := range l.at {
		i, _ := Decode(l.bytes(n))
		on = on || l.address(n) == addr
		calls = calls || n > l.entry() && l.calls(n, &i)
		if i.encoding.below(depth) {
			return fmt.Sprintf("uses memory below the stack pointer (at +%#x)", l.at[n])
		}
	}
	switch {
	case !on:
		return "has no instruction that begins there"
	case !calls:
		return "calls no other function, and may keep variables below the stack pointer (in its red zone)"
	}
	return ""
}

// entry is the index of the first instruction after an endbr64.
func (l *listing) entry() int {
	if bytes.HasPrefix(l.code, endbr64) {
		return 1
	}
	return 0
}

// calls reports whether instruction n calls a function: this one's beginning, or another.
func (l *listing) calls(n int, i *Instruction) bool {
	e := &i.encoding
	if e.extended || e.opcodeMap != mapOneByte {
		return false
	}
	if e.opcode == 0xff {
		return e.reg() == 2 // through a register or memory
	}
	to, ok := i.Branch(l.address(n))
	inside := to > l.start && to-l.start < uint64(len(l.code))
	return ok && e.opcode == 0xe8 && !inside
}

// below reports whether an instruction uses memory of the red zone: relative to the stack pointer,
// or to the frame pointer, which is depth bytes above the stack pointer.
func (e *encoding) below(depth int64) bool {
	m := e.memory
	address := e.opcode == 0x8d && e.opcodeMap == mapOneByte && !e.extended // lea
	switch m.base {
	case stackPointer:
		if address && e.reg() == 4 && e.rex&4 == 0 {
			return false // moves the stack pointer
		}
		return m.displacement < 0 && m.displacement >= -redZone
	case framePointer:
		if e.scaled {
			m.displacement *= 64 // at most
		}
		return m.displacement < -depth
	}
	return false
}

// frameDepth is how many bytes the stack pointer is below the frame pointer once the function has
// made its frame; the largest number if there is no frame pointer, or that is unknown.
func (l *listing) frameDepth() int64 {
	depth := int64(math.MaxInt64)
	for n := range l.at {
		if frame := l.bytes(n); bytes.HasPrefix(frame, []byte{0x48, 0x89, 0xe5}) ||
			bytes.HasPrefix(frame, []byte{0x48, 0x8b, 0xec}) {
			depth = min(depth, l.lowered(n+1)) // mov %rsp,%rbp
		}
	}
	return depth
}

// lowered is by how many bytes the instructions from n on lower the stack pointer, up to the first
// branch, or to the first use of the frame: by then the function has made it.
func (l *listing) lowered(n int) (bytes int64) {
	for ; n < len(l.at); n++ {
		i, _ := Decode(l.bytes(n))
		e := &i.encoding
		plain := !e.extended && e.opcodeMap == mapOneByte
		if e.memory.base == framePointer && !(plain && e.opcode == 0x8d) {
			return bytes
		}
		if !plain {
			continue
		}
		onStackPointer := e.modRM>>6 == 3 && e.modRM&7 == 4 && e.rex&1 == 0
		switch op := e.opcode; {
		case op >= 0x50 && op <= 0x57:
			bytes += 8
		case op == 0x68 || op == 0x6a: // push of a number
			bytes += 8
		case (op == 0x81 || op == 0x83) && e.reg() == 5 && onStackPointer: // sub
			bytes += e.immediate
		// An add may be of -128, which is shorter than a sub of 128.
		case (op == 0x81 || op == 0x83) && e.reg() == 0 && onStackPointer:
			bytes -= min(0, e.immediate)
		case (op == 0x81 || op == 0x83) && e.reg() == 4 && onStackPointer, // and: aligns it
			op == 0x29 && onStackPointer, op == 0x2b && e.reg() == 4: // sub of a register
			return math.MaxInt64
		case op == 0x8d && e.reg() == 4 && e.rex&4 == 0 && e.memory.base == stackPointer: // lea
			bytes -= e.memory.displacement
		case op == 0xc2 || op == 0xc3 || op == 0xc9 || op >= 0x70 && op <= 0x7f || op >= 0xe8 && op <= 0xeb ||
			op == 0xff:
			return bytes
		}
	}
	return bytes
}
