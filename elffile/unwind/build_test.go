package unwind

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// Where the files of these tests have their code and their frame descriptions.
const (
	codeAddr  = 0x1000
	codeSize  = 0x10000
	frameAddr = 0x20000
)

// frames writes an .eh_frame.
type frames struct{ data []byte }

func (f *frames) record(body []byte) (pos int) {
	for len(body)%4 != 0 {
		body = append(body, opNop)
	}
	pos = len(f.data)
	f.data = binary.LittleEndian.AppendUint32(f.data, uint32(len(body)))
	f.data = append(f.data, body...)
	return pos
}

// usual are the instructions of the CIE that compilers write: CFA = rsp + 8, return address at
// CFA - 8.
var usual = []byte{opDefCFA, regRSP, 8, opOffset | regRA, 1}

// cie adds a CIE with pointers relative to their place, code in bytes and data in words.
func (f *frames) cie(augmentation string, instructions ...byte) int {
	body := append([]byte{0, 0, 0, 0, 1}, augmentation...)
	body = append(body, 0, 1, 0x78, regRA)
	if strings.HasPrefix(augmentation, "z") {
		body = append(body, 1, relativeToPlace|0x0b)
	}
	return f.record(append(body, instructions...))
}

// function adds a frame description of size bytes at an offset from the code's begin.
func (f *frames) function(cie int, offset, size uint32, instructions ...byte) {
	at := len(f.data) + 4
	body := binary.LittleEndian.AppendUint32(nil, uint32(at-cie))
	body = binary.LittleEndian.AppendUint32(body, codeAddr+offset-(frameAddr+uint32(at)+4))
	body = append(binary.LittleEndian.AppendUint32(body, size), 0)
	f.record(append(body, instructions...))
}

// image is a file with that .eh_frame, and with nothing at its code.
func image(frames []byte) []byte {
	const offset = 0x1000
	frameOffset := uint64(offset + codeSize)
	b := elftest.Image{
		Machine: elf.EM_X86_64,
		Segments: []elf.Prog64{
			elftest.Code(offset, codeAddr, codeSize), elftest.Data(frameOffset, frameAddr, uint64(len(frames)), 0),
		},
		Pad: int(frameOffset) + len(frames),
	}.Bytes()
	copy(b[frameOffset:], frames)
	return withSection(b, frameOffset, uint64(len(frames)))
}

// withSection appends section headers with .eh_frame to a file.
func withSection(b []byte, offset, size uint64) []byte {
	names := "\x00.eh_frame\x00.names\x00"
	nameOffset := uint64(len(b))
	b = append(b, names...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	headers := uint64(len(b))
	b = elftest.Append(b, []elf.Section64{{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Addr: frameAddr, Off: offset, Size: size},
		{Name: 11, Type: uint32(elf.SHT_STRTAB), Off: nameOffset, Size: uint64(len(names))}})
	binary.LittleEndian.PutUint64(b[40:], headers)
	binary.LittleEndian.PutUint16(b[58:], 64)
	binary.LittleEndian.PutUint16(b[60:], 3)
	binary.LittleEndian.PutUint16(b[62:], 2)
	return b
}

func build(ctx context.Context, image []byte) (*Table, error) {
	f, err := elffile.Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return nil, err
	}
	return Build(ctx, f)
}

// text is a table as "offset rule, offset rule".
func (t *Table) text() string {
	var rows []string
	for _, r := range t.Rows {
		rows = append(rows, fmt.Sprintf("%x %v", r.Offset, r.Rule))
	}
	return strings.Join(rows, ", ")
}

// Rows of one function of 64 bytes at offset 0x10.
func TestRules(t *testing.T) {
	expression := func(op byte, expr ...byte) []byte { return append([]byte{op, byte(len(expr))}, expr...) }
	at := func(reg byte, expr ...byte) []byte {
		return append([]byte{opExpression, reg, byte(len(expr))}, expr...)
	}
	plt := []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}
	signal := bytes.Join([][]byte{expression(opDefCFAExpression, 0x77, 0xa0, 1, 0x06), at(regRBP, 0x77, 0xf8, 0),
		at(regRA, 0x77, 0xa8, 1)}, nil)
	for _, c := range []struct {
		name         string
		instructions []byte
		rows         string
	}{
		{"leaf", nil, "10 rsp+8"},
		{"frame of 48 bytes", []byte{opAdvance | 4, opDefCFAOffset, 56, opAdvance | 40, opDefCFAOffset, 8},
			"10 rsp+8, 14 rsp+56, 3c rsp+8"},
		{"frame pointer", []byte{opAdvance | 1, opDefCFAOffset, 16, opOffset | regRBP, 2, opAdvance | 3,
			opDefCFARegister, regRBP, opAdvance1, 50, opDefCFA, regRSP, 8},
			"10 rsp+8, 11 rsp+16 c-16, 14 rbp+16 c-16, 46 rsp+8 c-16"},
		{"rbp is pushed like any other register", []byte{opAdvance | 1, opDefCFAOffset, 16, opAdvance | 1,
			opDefCFAOffset, 24, opOffset | regRBP, 3, opAdvance | 32, opRestore | regRBP, opDefCFAOffset, 8},
			"10 rsp+8, 11 rsp+16, 12 rsp+24 c-24, 32 rsp+8"},
		{"state is remembered", []byte{opAdvance | 2, opDefCFAOffset, 32, opRememberState, opAdvance | 8,
			opDefCFAOffset, 8, opAdvance | 1, opRestoreState}, "10 rsp+8, 12 rsp+32, 1a rsp+8, 1b rsp+32"},
		{"large frame", []byte{opAdvance4, 7, 0, 0, 0, opDefCFAOffset, 0x98, 0x80, 1}, "10 rsp+8, 17 rsp+16408"},
		{"too large a frame", []byte{opAdvance2, 7, 0, opDefCFAOffset, 0x80, 0x80, 0x80, 1}, "10 rsp+8, 17 unsupported"},
		{"odd frame", []byte{opAdvance | 7, opDefCFAOffset, 12}, "10 rsp+8, 17 unsupported"},
		{"another register", []byte{opAdvance | 7, opDefCFARegister, 0}, "10 rsp+8, 17 unsupported"},
		{"rbp in a register", []byte{opAdvance | 7, opRegister, regRBP, 3}, "10 rsp+8, 17 unsupported"},
		{"rbp is lost", []byte{opAdvance | 7, opUndefined, regRBP}, "10 rsp+8, 17 rsp+8 lost"},
		{"outermost function", []byte{opUndefined, regRA}, "10 root"},
		{"realigned stack", append(append([]byte{opAdvance | 9}, expression(opDefCFAExpression, 0x76, 0x78, 0x06)...),
			at(regRBP, 0x76, 0)...), "10 rsp+8, 19 *(rbp-8)+0 *rbp"},
		{"old rsp on the stack", append([]byte{opAdvance | 9}, expression(opDefCFAExpression, 0x77, 40, 0x06, 0x23, 8)...),
			"10 rsp+8, 19 *(rsp+40)+8"},
		{"old rsp below rsp", append([]byte{opAdvance | 9}, expression(opDefCFAExpression, 0x77, 0x78, 0x06, 0x23, 8)...),
			"10 rsp+8, 19 *(rsp-8)+8"},
		{"plt", expression(opDefCFAExpression, plt...), "10 plt"},
		{"another expression", expression(opDefCFAExpression, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06),
			"10 unsupported"},
		{"expression of a signal frame", signal, "10 unsupported"},
		{"other registers are nobody's business", []byte{opOffset | 3, 4, opOffsetExtendedSF, 12, 5, opValOffset, 13, 6,
			opSameValue, 14, opRestoreExtended, 15, opArgsSize, 16}, "10 rsp+8"},
		{"more than the function has", []byte{opAdvance | 8, opDefCFAOffset, 16, opAdvance1, 200, opDefCFAOffset, 99},
			"10 rsp+8, 18 rsp+16"},
		{"unknown instruction", []byte{0x3f}, ""},
		{"state that was not remembered", []byte{opRestoreState}, ""},
		{"number is cut short", []byte{opDefCFAOffset, 0x80, 0x80}, ""},
		{"expression is longer than the record", []byte{opDefCFAExpression, 0x7f}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f frames
			f.function(f.cie("zR", usual...), 0x10, 0x40, c.instructions...)
			table, err := build(t.Context(), image(f.data))
			switch {
			case c.rows == "" && !errors.Is(err, ErrNone):
				t.Errorf("%v, %v", table, err)
			case c.rows != "" && err != nil:
				t.Error(err)
			case c.rows != "":
				if got, want := table.text(), c.rows+", 50 none"; got != want {
					t.Errorf("%s\nwant %s", got, want)
				}
			}
		})
	}
}

func TestSignalFrame(t *testing.T) {
	var f frames
	f.function(f.cie("zRS"), 0x0f, 0x11, opDefCFAExpression, 4, 0x77, 0xa0, 1, 0x06, opExpression, regRBP, 3, 0x77, 0xf8, 0,
		opExpression, regRA, 3, 0x77, 0xa8, 1)
	table, err := build(t.Context(), image(f.data))
	if err != nil {
		t.Fatal(err)
	}
	if got := table.text(); got != "f signal, 20 none" {
		t.Error(got)
	}
}

// Functions are in any order, with gaps or none, and may overlap.
func TestFunctions(t *testing.T) {
	var f frames
	c := f.cie("zR", usual...)
	second := f.cie("zR", opDefCFA, regRSP, 16, opOffset|regRA, 1)
	f.function(second, 0x300, 0x10)
	f.function(c, 0x100, 0x20)
	f.function(second, 0x120, 0x2) // padding follows
	f.function(c, 0x130, 0x100)
	f.function(second, 0x200, 0x10)         // inside of the one before
	f.function(c, codeSize, 0x10)           // no code
	f.function(c, 0x10, codeSize)           // more than there is
	f.function(c, 0x400, 0)                 // empty
	f.function(c, 0xfffffff0-codeAddr, 0x8) // far away
	table, err := build(t.Context(), image(f.data))
	if err != nil {
		t.Fatal(err)
	}
	const want = "100 rsp+8, 120 rsp+16, 130 rsp+8, 200 rsp+16, 210 none, 300 rsp+16, 310 none"
	if got := table.text(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if table.Functions != 9 || table.Dropped != 4 {
		t.Errorf("%d functions, %d dropped", table.Functions, table.Dropped)
	}
	for addr, want := range map[uint64]string{0: "none", codeAddr + 0xff: "none", codeAddr + 0x100: "rsp+8",
		codeAddr + 0x12f: "rsp+16", codeAddr + 0x20f: "rsp+16", codeAddr + 0x210: "none", codeAddr + 1<<33: "none"} {
		if got := table.Find(addr).String(); got != want {
			t.Errorf("%#x: %s, want %s", addr, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	withCIE := func(change func(body []byte)) []byte {
		var f frames
		c := f.cie("zR", usual...)
		change(f.data[4:])
		f.function(c, 0x10, 0x10)
		return f.data
	}
	for name, data := range map[string][]byte{
		"nothing":                nil,
		"only the end":           {0, 0, 0, 0},
		"length of 64 bits":      {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"longer than the file":   {0xf0, 0, 0, 0, 1, 0, 0, 0},
		"shorter than its start": {1, 0, 0, 0, 1},
		"no CIE":                 {8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0},
		"CIE before the section": {8, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0},
		"version of debug_frame": withCIE(func(b []byte) { b[4] = 4 }),
		"old augmentation":       withCIE(func(b []byte) { b[5] = 'e' }),
		"unknown augmentation":   withCIE(func(b []byte) { b[6] = 'Q' }),
		"endless augmentation":   withCIE(func(b []byte) { copy(b[5:], bytes.Repeat([]byte{'z'}, len(b)-5)) }),
		"another return address": withCIE(func(b []byte) { b[10] = 30 }),
		"indirect pointers":      withCIE(func(b []byte) { b[12] |= encodedIndirect }),
		"pointers from the data": withCIE(func(b []byte) { b[12] = 0x3b }),
	} {
		if table, err := build(t.Context(), image(data)); err == nil {
			t.Errorf("%s: %s", name, table.text())
		} else if !errors.Is(err, ErrNone) && !errors.Is(err, elffile.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	arm := image(nil)
	binary.LittleEndian.PutUint16(arm[18:], uint16(elf.EM_AARCH64))
	if _, err := build(t.Context(), arm); !errors.Is(err, ErrMachine) {
		t.Errorf("arm64: %v", err)
	}
}

// What a file can make a build do is bounded, and whoever waits for it can end it.
func TestBounds(t *testing.T) {
	var f frames
	c := f.cie("zR", usual...)
	for offset := uint32(0); len(f.data) < 16<<20; offset++ {
		f.function(c, offset%codeSize, 0xff, bytes.Repeat([]byte{opAdvance | 1, opRememberState, opRestoreState}, 85)...)
	}
	file := image(f.data)
	begin := time.Now()
	if table, err := build(t.Context(), file); err != nil && !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	} else if err == nil && len(table.Rows) > MaxRows {
		t.Errorf("%d rows", len(table.Rows))
	}
	t.Logf("%d MB: %v", len(file)>>20, time.Since(begin))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build(ctx, file); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// Whatever an .eh_frame says, there is a table that can be searched, or an error.
func FuzzBuild(f *testing.F) {
	var one frames
	c := one.cie("zR", usual...)
	one.function(c, 0x10, 0x40, opAdvance|1, opDefCFAOffset, 16, opOffset|regRBP, 2, opAdvance|3, opDefCFARegister, regRBP)
	one.function(one.cie("zRS"), 0x100, 0x11, opDefCFAExpression, 4, 0x77, 0xa0, 1, 0x06, opExpression, regRBP, 3, 0x77,
		0xf8, 0, opExpression, regRA, 3, 0x77, 0xa8, 1)
	f.Add(one.data)
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := build(t.Context(), image(data))
		if (table == nil) == (err == nil) {
			t.Fatalf("%v, %v", table, err)
		}
		if err != nil {
			return
		}
		for i, r := range table.Rows {
			if r.Rule.Kind() >= kinds || table.Find(table.Base+uint64(r.Offset)) != r.Rule {
				t.Fatalf("row %d: %v", i, r)
			}
			if i > 0 && (r.Offset <= table.Rows[i-1].Offset || r.Rule == table.Rows[i-1].Rule) {
				t.Fatalf("rows %v, %v", table.Rows[i-1], r)
			}
		}
	})
}
