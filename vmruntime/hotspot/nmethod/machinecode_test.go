package nmethod

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
)

func TestInEpilogue(t *testing.T) {
	var (
		addRSP     = []byte{0x48, 0x83, 0xc4, 0x20}
		addRSPWide = []byte{0x48, 0x81, 0xc4, 0x80, 1, 0, 0}
		popRBP     = []byte{0x5d}
		ret        = []byte{0xc3}
		leave      = []byte{0xc9}
		poll       = []byte{0x49, 0x3b, 0xa7, 0x48, 3, 0, 0} // cmp rsp, [r15 + M]
		pollShort  = []byte{0x49, 0x3b, 0x67, 0x28}
		ja         = []byte{0x0f, 0x87, 0x10, 0, 0, 0}
		load       = []byte{0x4d, 0x8b, 0x97, 0x08, 1, 0, 0} // mov r10, [r15 + M]
		testThread = []byte{0x41, 0x85, 0x02}                // test [r10], eax
		testPage   = []byte{0x85, 0x05, 1, 2, 3, 4}          // test [rip + M], eax
		rethrow    = []byte{0xe9, 1, 2, 3, 4}
		exception  = []byte{0x49, 0x83, 0x7f, 0x08, 0} // cmp [r15 + M], 0
		exceptWide = []byte{0x49, 0x81, 0x7f, 0x08, 0, 0, 0, 0}
		jne        = []byte{0x0f, 0x85, 1, 0, 0, 0}
		watermark  = []byte{0x41, 0xf6, 0x47, 0x28, 1} // test [r15 + M], 1
	)
	body := []byte{0x48, 0x8b, 0x44, 0x24, 0x08} // mov rax, [rsp + 8]: the frame stands
	for _, test := range []struct {
		name     string
		epilogue [][]byte // the first instruction is the last one with a frame
	}{
		{"17", [][]byte{addRSP, popRBP, poll, ja, ret}},
		{"17, large frame", [][]byte{addRSPWide, popRBP, poll, ja, ret}},
		{"17, short poll", [][]byte{addRSP, popRBP, pollShort, ja, ret}},
		{"11", [][]byte{addRSP, popRBP, load, testThread, ret}},
		{"8", [][]byte{addRSP, popRBP, testPage, ret}},
		{"no frame but rbp", [][]byte{body, popRBP, ret}},
		{"rethrow", [][]byte{addRSP, popRBP, rethrow}},
		{"native, 17", [][]byte{leave, exceptWide, jne, ret}},
		{"native, 17, short", [][]byte{leave, exception, jne, ret}},
		{"native, 25", [][]byte{leave, watermark}},
	} {
		code := text(bytes.Join(append([][]byte{body, body, body}, test.epilogue...), nil))
		offset := 0
		for range 3 {
			if inEpilogue(code, offset) {
				t.Errorf("%s: the body counts", test.name)
			}
			offset += len(body)
		}
		for i, instruction := range test.epilogue {
			if got := inEpilogue(code, offset); got != (i > 0) {
				t.Errorf("%s, at instruction %d, % x: %v", test.name, i, instruction, got)
			}
			offset += len(instruction)
		}
		for offset := range len(code) + 2 { // anywhere, and behind the end
			inEpilogue(code, offset)
		}
	}
}

func TestConditionalJumps(t *testing.T) {
	code := make([]byte, 64)
	jump := func(at int, opcode byte, distance int32) {
		code[at], code[at+1] = 0x0f, opcode
		binary.LittleEndian.PutUint32(code[at+2:], uint32(distance))
	}
	jump(4, 0x84, 20)    // je
	jump(20, 0x8f, -26)  // jg to the first instruction
	jump(30, 0x83, 1000) // leads elsewhere
	jump(40, 0xb6, 1)    // movzx
	code[60], code[61] = 0x0f, 0x84
	var got [][2]int32
	conditionalJumps(code, func(end, to int32) { got = append(got, [2]int32{end, to}) })
	if want := [][2]int32{{10, 30}, {26, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestIsPoll(t *testing.T) {
	for name, code := range map[string][]byte{
		"test eax, [r10]": {0x41, 0x85, 0x02}, "test eax, [rax]": {0x85, 0x00},
		"test eax, [r12]":     {0x41, 0x85, 0x04, 0x24},
		"test eax, [r13 + 0]": {0x41, 0x85, 0x45, 0x00}, "test eax, [rip + 8]": {0x85, 0x05, 8, 0, 0, 0},
	} {
		if !isPoll(code) {
			t.Errorf("%s is no poll", name)
		}
	}
	for name, code := range map[string][]byte{
		"test eax, eax": {0x85, 0xc0}, "test ecx, [rax]": {0x85, 0x08}, "nothing": {}, "cut off": {0x41, 0x85},
		"cmp eax, [rax]": {0x3b, 0x00},
	} {
		if isPoll(code) {
			t.Errorf("%s is a poll", name)
		}
	}
}
