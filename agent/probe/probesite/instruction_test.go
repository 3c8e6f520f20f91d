package probesite

import (
	"bufio"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

// unhex parses code in hexadecimal, with optional spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	code, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		name string
		code string
		kind Kind
	}{
		{"nop", "90", Nop},
		{"nop of two bytes", "66 90", LongNop},
		{"nop with REX.W", "48 90", LongNop},
		{"nop of three bytes", "0f 1f 00", LongNop},
		{"nop of five bytes", "0f 1f 44 00 00", Nop5},
		{"five bytes, but another displacement", "0f 1f 44 00 08", LongNop},
		{"five bytes, but another register", "0f 1f 44 08 00", LongNop},
		{"nop of six bytes", "66 0f 1f 44 00 00", LongNop},
		{"nop of eight bytes, with which JDK 25 marks calls", "0f 1f 84 00 88 02 00 01", LongNop},
		{"nop with a segment, as linkers pad", "66 2e 0f 1f 84 00 00 00 00 00", Refused},
		{"pause", "f3 90", Stepped},
		{"xchg %r8,%rax", "49 90", Stepped},
		{"push %rbp", "55", Push},
		{"push %r15", "41 57", Push},
		{"push %rbp with REX.W", "48 55", Stepped},
		{"push %rbp with an idle REX", "40 55", Stepped},
		{"push of 16 bits", "66 55", Stepped},
		{"push in memory", "ff 75 08", Stepped},
		{"push of a constant", "6a 08", Stepped},
		{"pop %rbp", "5d", Stepped},
		{"jmp", "eb fe", Jump},
		{"jmp far away", "e9 00 01 00 00", Jump},
		{"jmp in memory", "ff 25 00 00 00 00", Stepped},
		{"je", "74 0a", CondJump},
		{"jg far away", "0f 8f 00 01 00 00", CondJump},
		{"je, said to be taken", "3e 74 0a", Refused},
		{"jrcxz", "e3 0a", Stepped},
		{"loop", "e2 0a", Stepped},
		{"call", "e8 00 01 00 00", Call},
		{"call of a register", "ff d0", Stepped},
		{"call of TLS, with prefixes for the linker", "66 66 48 e8 00 00 00 00", Refused},
		{"endbr64", "f3 0f 1e fa", Stepped},
		{"ret", "c3", Stepped},
		{"test", "85 c0", Stepped},
		{"sub $0x18,%rsp", "48 83 ec 18", Stepped},
		{"mov from what is relative to rip", "48 8b 05 10 00 00 00", Stepped},
		{"mov from thread-local memory, with a SIB byte without registers", "64 48 8b 04 25 28 00 00 00", Stepped},
		{"mov with an index and a displacement alone", "8b 04 dd 00 00 00 00", Stepped},
		{"movabs", "48 b8 00 00 00 00 00 00 00 01", Stepped},
		{"mov of an absolute address", "48 a1 00 00 00 00 00 00 00 01", Stepped},
		{"mov of 16 bits", "66 b8 00 01", Stepped},
		{"test with a constant of 16 bits", "66 f7 c0 00 01", Stepped},
		{"not, in the same group", "f7 d0", Stepped},
		{"test of a byte", "f6 c2 01", Stepped},
		{"enter", "c8 10 00 00", Stepped},
		{"mov from a control register, which has no address", "0f 20 45", Stepped},
		{"lock cmpxchg", "f0 48 0f b1 1a", Refused},
		{"int3", "cc", Refused},
		{"hlt", "f4", Refused},
		{"vmovdqu, 6f as outs", "c5 fa 6f 06", Refused},
		{"vzeroupper", "c5 f8 77", Stepped},
		{"crc32", "f2 48 0f 38 f1 c1", Stepped},
		{"pcmpistri", "66 0f 3a 63 c1 1a", Stepped},
		{"roundsd", "66 0f 3a 0b c0 09", Stepped},
		{"xbegin", "c7 f8 00 00 00 00", Stepped},
	} {
		code := unhex(t, test.code)
		i, err := Decode(append(code, 0xcc, 0xcc))
		if err != nil || i.Len != len(code) || i.Kind != test.kind {
			t.Errorf("%s: %d bytes, %v, %v; want %d, %v", test.name, i.Len, i.Kind, err, len(code), test.kind)
		}
		if _, err := Decode(code[:len(code)-1]); !errors.Is(err, errTruncated) {
			t.Errorf("%s, cut short: %v", test.name, err)
		}
	}
}

func TestDecodeInvalid(t *testing.T) {
	for _, test := range []struct {
		name, code string
		want       error
	}{
		{"nothing", "", errTruncated},
		{"prefixes only", "66 66", errTruncated},
		{"sixteen bytes", "66 66 66 66 66 66 66 66 66 66 66 66 66 66 66 90", errInvalid},
		{"push %es", "06", errInvalid},
		{"REX before a prefix", "48 66 89 c0", errInvalid},
		{"REX before VEX", "48 c5 f8 77", errInvalid},
		{"operand size before VEX", "66 c5 f8 77", errInvalid},
		{"VEX of no map", "c4 e4 79 18 01", errInvalid},
		{"EVEX of APX", "62 fc 7c 08 10 00", errInvalid},
		{"EVEX with APX's registers", "62 f9 7c 48 10 00", errInvalid},
		{"EVEX with APX's index registers", "62 f1 78 48 10 00", errInvalid},
		{"EVEX of no map", "62 f0 7c 48 10 00", errInvalid},
		{"call of 16 bits, or 32", "66 e8 00 00 00 00", errAmbiguous},
		{"no such group", "ff ff", errInvalid},
		{"XOP", "8f e8 78 c0 c1 00", errInvalid},
	} {
		if i, err := Decode(unhex(t, test.code)); !errors.Is(err, test.want) {
			t.Errorf("%s: %d bytes, %v, want %v", test.name, i.Len, err, test.want)
		}
	}
}

// One instruction of each VEX and EVEX opcode in glibc, the JDK's libraries and compiled Java code,
// as disassembled by objdump of binutils 2.40.
func TestDecodeExtended(t *testing.T) {
	file, err := os.Open("testdata/extended.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); n++ {
		bytes, text, _ := strings.Cut(lines.Text(), " ")
		code := unhex(t, bytes)
		i, err := Decode(append(code, 0xff, 0xff, 0xff, 0xff))
		if err != nil || i.Len != len(code) || i.Kind != Stepped && i.Kind != Refused {
			t.Errorf("%s: %d bytes, %v, %v; want %d", text, i.Len, i.Kind, err, len(code))
		}
		if !i.encoding.extended {
			t.Errorf("%s: not seen as VEX or EVEX", text)
		}
		if _, err := Decode(code[:len(code)-1]); !errors.Is(err, errTruncated) {
			t.Errorf("%s, cut short: %v", text, err)
		}
	}
	if n < 400 {
		t.Errorf("only %d encodings", n)
	}
}

func TestTarget(t *testing.T) {
	for _, test := range []struct {
		code   string
		target uint64
		ok     bool
	}{
		{"eb fe", 0x1000, true},
		{"74 10", 0x1012, true},
		{"e8 fb ff ff ff", 0x1000, true},
		{"0f 84 fa ff ff ff", 0x1000, true},
		{"e2 00", 0x1002, true},
		{"ff e0", 0, false},
		{"0f af c0", 0, false},
		{"c5 f8 77", 0, false},
	} {
		i, err := Decode(unhex(t, test.code))
		if err != nil {
			t.Fatal(err)
		}
		if target, ok := i.Branch(0x1000); target != test.target || ok != test.ok {
			t.Errorf("%s: %#x, %t", test.code, target, ok)
		}
	}
}

// For any bytes, the decoder fails only with an error, and if x86asm knows the instruction, both
// have the same length.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"90", "55", "4155", "0f1f440000", "662e0f1f840000000000", "f30f1efa", "e800000000", "0f8400000000",
		"48b80000000000000001",
		"c5f877", "c4e2791801", "62f17c481000", "66660fe800", "f0480fb11a", "8b84ca00000000", "f6c201", "c8100000",
		"6766a100000000",
	} {
		f.Add(unhex(f, seed))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		i, err := Decode(code)
		if (err == nil) != (i.Len != 0) {
			t.Fatalf("% x: length %d and error %v", code, i.Len, err)
		}
		effectOf(code)
		text(code)
		if err != nil {
			return
		}
		if i.Len < 1 || i.Len > maxInstruction || i.Len > len(code) {
			t.Fatalf("% x: length %d", code, i.Len)
		}
		if known, err := x86asm.Decode(code, 64); err == nil && known.Op != 0 && known.Len != i.Len &&
			!disputed(&i.encoding) {
			t.Fatalf("% x: length %d, x86asm says %d: %v", code, i.Len, known.Len, known)
		}
	})
}

// disputed reports whether x86asm has the length of an instruction wrong: it reads an address after
// a move to or from a control or debug register, an operand after vzeroupper, and takes EVEX's map
// 5 for map 1.
func disputed(e *encoding) bool {
	if e.extended {
		return e.opcode == 0x77 || e.opcodeMap >= map5
	}
	return e.opcodeMap == map0F && e.opcode >= 0x20 && e.opcode <= 0x23
}
