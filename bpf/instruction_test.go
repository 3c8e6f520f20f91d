//go:build linux && amd64

package bpf

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// An instruction is its bytes, and what it does to the stack and to rbp; nil is nothing.
type instruction struct {
	text  string
	bytes []byte
	do    func(*fakeStack)
}

func ins(text, code string, do func(*fakeStack)) instruction {
	b, err := hex.DecodeString(strings.ReplaceAll(code, " ", ""))
	if err != nil {
		panic(err)
	}
	return instruction{text, b, do}
}

// wide is an instruction that ends in a 32-bit number.
func wide(text, code string, n int32, do func(*fakeStack)) instruction {
	i := ins(text, code, do)
	i.bytes = binary.NativeEndian.AppendUint32(i.bytes, uint32(n))
	return i
}

var (
	bang     = ins("mov [rsp-0x14000], eax", "89 84 24 00 c0 fe ff", nil)
	pushRBP  = ins("push rbp", "55", func(s *fakeStack) { s.push(s.bp) })
	popRBP   = ins("pop rbp", "5d", func(s *fakeStack) { s.bp = s.pop() })
	movRBP   = ins("mov rbp, rsp", "48 8b ec", func(s *fakeStack) { s.bp = s.sp })
	leave    = ins("leave", "c9", func(s *fakeStack) { s.sp = s.bp; s.bp = s.pop() })
	nop      = ins("nop", "90", nil)
	nop3     = ins("nop [rax]", "0f 1f 00", nil)
	useRBP   = ins("mov rbp, rax", "48 8b e8", func(s *fakeStack) { s.bp = poison })
	ret      = ins("ret", "c3", nil)
	rethrow  = ins("jmp rethrow", "e9 00 10 00 00", nil)
	barrier  = ins("cmp [r15+0x20], 1", "41 81 7f 20 01 00 00 00", nil)
	jneSlow  = ins("jne slow", "0f 85 00 10 00 00", nil)
	jeDone   = ins("je done", "74 05", nil)
	callSlow = ins("call slow", "e8 00 10 00 00", nil)

	// Polls for safepoints before ret: 8; 10 to 15 with thread-local polling; 16 and later, two
	// displacements.
	pollPage     = ins("test [rip+M], eax", "85 05 00 10 00 00", nil)
	loadPoll     = ins("mov r10, [r15+0x108]", "4d 8b 97 08 01 00 00", nil)
	pollThread   = ins("test [r10], eax", "41 85 02", nil)
	pollStack    = ins("cmp rsp, [r15+0x28]", "49 3b 67 28", nil)
	pollStackFar = ins("cmp rsp, [r15+0x450]", "49 3b a7 50 04 00 00", nil)
	jaSlow       = ins("ja slow", "0f 87 00 10 00 00", nil)

	// A native method looks for an exception before it returns.
	exception     = ins("cmp [r15+8], 0", "49 83 7f 08 00", nil)
	exceptionWide = ins("cmp [r15+8], 0", "49 81 7f 08 00 00 00 00", nil)
	jneException  = ins("jne forward", "0f 85 00 10 00 00", nil)
)

func subRSP(n int32) instruction {
	do := func(s *fakeStack) { s.sp -= uint64(n) }
	if n < 128 {
		return instruction{"sub rsp, n", []byte{0x48, 0x83, 0xec, byte(n)}, do}
	}
	return subRSPWide(n)
}

func subRSPWide(n int32) instruction {
	return wide("sub rsp, n", "48 81 ec", n, func(s *fakeStack) { s.sp -= uint64(n) })
}

func addRSP(n int32) instruction {
	do := func(s *fakeStack) { s.sp += uint64(n) }
	if n < 128 {
		return instruction{"add rsp, n", []byte{0x48, 0x83, 0xc4, byte(n)}, do}
	}
	return wide("add rsp, n", "48 81 c4", n, do)
}

func storeRBP(m int32) instruction {
	do := func(s *fakeStack) { s.mem.put64(s.sp+uint64(m), s.bp) }
	if m < 128 {
		return instruction{"mov [rsp+m], rbp", []byte{0x48, 0x89, 0x6c, 0x24, byte(m)}, do}
	}
	return wide("mov [rsp+m], rbp", "48 89 ac 24", m, do)
}

func addRBP(n int32) instruction {
	return wide("add rbp, n", "48 81 c5", n, func(s *fakeStack) { s.bp += uint64(n) })
}

// prologueC2 is what C2 makes where the stack must be checked.
func prologueC2(frame int32) []instruction {
	return []instruction{bang, pushRBP, subRSP(frame - 16)}
}

// epilogue17 is what C1 and C2 make since JDK 16.
func epilogue17(frame int32) []instruction {
	return []instruction{addRSP(frame - 16), popRBP, pollStackFar, jaSlow, ret}
}

// A template is compiled code: what the compilers put first and last, and something in between.
type template struct {
	name               string
	frame              int32 // bytes, return address and saved rbp included
	prologue, epilogue []instruction
	keepsRBP           bool // as a frame pointer
}

// placed is an instruction at its offset.
type placed struct {
	instruction
	off uint64
}

type code struct {
	bytes    []byte
	complete uint32
	steps    []placed // without the filler in the middle
}

// assemble fills the middle so that the code has that many bytes.
func (t template) assemble(size int) code {
	var c code
	add := func(list ...instruction) {
		for _, i := range list {
			c.steps = append(c.steps, placed{i, uint64(len(c.bytes))})
			c.bytes = append(c.bytes, i.bytes...)
		}
	}
	add(t.prologue...)
	c.complete = uint32(len(c.bytes))
	if !t.keepsRBP {
		add(useRBP)
	}
	tail := 0
	for _, i := range t.epilogue {
		tail += len(i.bytes)
	}
	c.bytes = append(c.bytes, bytes.Repeat(nop.bytes, size-len(c.bytes)-tail)...)
	add(t.epilogue...)
	return c
}
