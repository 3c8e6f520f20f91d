package probesite

import (
	"bytes"
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

// The code of test files is loaded at an address that differs from its offset.
const (
	codeOffset  = 0x1000
	codeAddress = 0x5000
)

// A routine is a function of such a file.
type routine struct {
	name, code string
}

// imageOf makes a file of consecutive routines. The code goes to the file's pad, where a section
// without a header would be.
func imageOf(t testing.TB, notes []byte, routines ...routine) []byte {
	t.Helper()
	var code []byte
	var symbols []elftest.Symbol
	for _, r := range routines {
		b := unhex(t, r.code)
		symbols = append(symbols, elftest.Symbol{Name: r.name, Value: codeAddress + uint64(len(code)),
			Size: uint64(len(b))})
		code = append(code, b...)
	}
	image := elftest.Image{
		Machine:  elf.EM_X86_64,
		Segments: []elf.Prog64{elftest.Code(codeOffset, codeAddress, uint64(len(code)))},
		Sections: elftest.Symbols(elf.SHT_SYMTAB, symbols...),
		Pad:      codeOffset + len(code),
	}
	if notes != nil {
		image.Sections = append(image.Sections, elftest.Section{Name: ".note.stapsdt", Data: notes,
			Header: elf.Section64{Type: uint32(elf.SHT_NOTE)}})
	}
	b := image.Bytes()
	copy(b[codeOffset:], code)
	return b
}

func finderOf(t testing.TB, image []byte) *Finder {
	t.Helper()
	r := bytes.NewReader(image)
	f, err := elffile.Open(r, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	return New(f, r)
}

func TestEntries(t *testing.T) {
	const ret = "c3"
	for _, test := range []struct {
		name     string
		code     string
		distance int // -1: no site
		at       uint64
		kind     Kind
		reason   string
	}{
		{"push", "55 4889e5" + ret, 0, 0, Push, ""},
		{"endbr64, push", "f30f1efa 4157" + ret, 1, 4, Push, ""},
		{"a copy of an argument before", "4889f8 55" + ret, 1, 3, Push, ""},
		{"a jump that is always passed", "85ff 7401 90" + ret, 1, 2, CondJump, ""},
		{"a call", "4883ec08 e800000000" + ret, 1, 4, Call, ""},
		{"an argument is overwritten", "31ff 55" + ret, -1, 0, 0, "writes to an argument"},
		{"its low byte is", "40b701 55" + ret, -1, 0, 0, "writes to an argument"},
		{"the seventh argument's register is no argument", "4d31d2 55" + ret, 1, 3, Push, ""},
		{"a return before", "4889f8" + ret + "55", -1, 0, 0, "ret"},
		{"a jump through a register", "ffe0 55", -1, 0, 0, "jmp"},
		{"VEX before", "c5f96ec7 55" + ret, -1, 0, 0, "instruction c5 f9 6e c7"},
		{"a loop leads back to the site", "4889f8 55 75fd" + ret, -1, 0, 0, "loop"},
		{"a loop leads back to before it", "4889f8 4889f8 55 75fa" + ret, -1, 0, 0, "loop"},
		{"a loop to the first instruction is a call of its own", "55 75fd" + ret, 0, 0, Push, ""},
		{"a loop further down", "4889f8 55 90 75fd" + ret, 1, 3, Push, ""},
		{"a loop that cannot be told", "4889f8 55 06" + ret, -1, 0, 0, "unknown whether"},
		{"data behind a push", "55 06" + ret, 0, 0, Push, ""},
		{"nothing cheap", strings.Repeat("4889c0", 9) + "55", -1, 0, 0, "none of the first 8"},
		{"nothing at all but moves", "4889c0", -1, 0, 0, "none of the first 1"},
		{"a nop that not all kernels emulate", "0f1f440000 55", 1, 5, Push, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := finderOf(t, imageOf(t, nil, routine{"before", "90"}, routine{"f", test.code}, routine{"behind", "c3"}))
			sites, err := f.Entries("f")
			if test.distance < 0 {
				if !errors.Is(err, ErrNoSite) || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("%+v, %v, want %q", sites, err, test.reason)
				}
				return
			}
			if err != nil || len(sites) != 1 {
				t.Fatalf("%+v, %v", sites, err)
			}
			got, begin := sites[0], uint64(codeAddress+1)
			if got.Address != begin+test.at || got.Offset != got.Address-codeAddress+codeOffset ||
				got.Kind != test.kind || !got.Emulated || got.Distance != test.distance || got.Function != "f" {
				t.Errorf("%+v, want %v at %#x", got, test.kind, begin+test.at)
			}
		})
	}
}

// Calls of and jumps to a function, in another one only.
func TestTowards(t *testing.T) {
	f := finderOf(t, imageOf(t, nil,
		routine{"f", "c3"},                                    // 5000
		routine{"a", "4889fa e9f7ffffff"},                     // 5001: hands an argument on
		routine{"b", "e8f2ffffff 85c0 7405 e8e9ffffff c3 90"}, // 5009: calls it twice
		routine{"c", "e8e3ffffff c3"},                         // 5019: calls a
		routine{"d", "74e0 c3"},                               // 501f: a jump on a flag to a is no call
	))
	for _, test := range []struct {
		callee, from string
		want         []uint64
		err          error
	}{
		{"f", "a", []uint64{0x5004}, nil},
		{"f", "b", []uint64{0x5009, 0x5012}, nil},
		{"a", "c", []uint64{0x5019}, nil},
		{"f", "c", nil, ErrNoSite},
		{"a", "d", nil, ErrNoSite},
		{"f", "nobody", nil, ErrNotFound},
		{"nobody", "a", nil, ErrNotFound},
	} {
		sites, err := f.Towards(test.callee, test.from)
		if !errors.Is(err, test.err) {
			t.Errorf("from %s to %s: %v, want %v", test.from, test.callee, err, test.err)
		}
		var got []uint64
		for _, s := range sites {
			got = append(got, s.Address)
			if s.Function != test.from || !s.Emulated || s.Offset != s.Address-codeAddress+codeOffset {
				t.Errorf("%+v", s)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("from %s to %s: %#x, want %#x", test.from, test.callee, got, test.want)
		}
	}
}

// At most the maximum length of a function is read, whatever a symbol says.
func TestCodeBounds(t *testing.T) {
	f := finderOf(t, imageOf(t, nil, routine{"f", strings.Repeat("90", maxFunction+1)}))
	for _, test := range []struct {
		addr, size uint64
		ok         bool
	}{
		{codeAddress, maxFunction, true},
		{codeAddress, maxFunction + 1, false},
		{codeAddress, 0, false},
		{codeAddress, 1 << 63, false},
		{codeAddress - 1, 2, false},
		{codeAddress + maxFunction, 1, true},
		{codeAddress + maxFunction, 2, false},
	} {
		code, err := f.code(test.addr, test.size)
		if (err == nil) != test.ok || err == nil && uint64(len(code)) != test.size {
			t.Errorf("%d bytes at %#x: %d, %v", test.size, test.addr, len(code), err)
		}
	}
	if sites, err := f.Entries("f"); err != nil || len(sites) != 1 {
		t.Errorf("a function that is too long: %+v, %v", sites, err)
	}
}

// A Finder uses what the kernel emulates according to Emulates.
func TestEmulates(t *testing.T) {
	f := finderOf(t, imageOf(t, nil, routine{"f", "0f1f440000 55"}))
	f.Emulates = func(k Kind) bool { return k == Nop5 || k.Emulated() }
	sites, err := f.Entries("f")
	if err != nil || len(sites) != 1 || sites[0].Kind != Nop5 || !sites[0].Emulated {
		t.Errorf("%+v, %v", sites, err)
	}
}

// After registers were overwritten, the needed arguments are still there, and the return address.
func TestEntriesWith(t *testing.T) {
	// This code is from JDK 11: the third argument's register is used.
	const enter = "f30f1efa 488d9780000000 31c0 f0480fb132 4885c0 7401 90 c3"
	for _, test := range []struct {
		name, code string
		arguments  int
		at         uint64
		reason     string
	}{
		{"two arguments", enter, 2, 21, ""},
		{"three", enter, 3, 0, "writes to an argument"},
		{"the first is overwritten", "31ff 55 c3", 1, 0, "writes to an argument"},
		{"nobody wants it", "31ff 55 c3", 0, 2, ""},
		{"the stack pointer moves", "4883ec08 e800000000 c3", 1, 0, "writes to an argument"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sites, err := finderOf(t, imageOf(t, nil, routine{"f", test.code})).EntriesWith("f", test.arguments)
			if test.reason != "" {
				if !errors.Is(err, ErrNoSite) || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("%+v, %v, want %q", sites, err, test.reason)
				}
				return
			}
			if err != nil || len(sites) != 1 || sites[0].Address != codeAddress+test.at {
				t.Errorf("%+v, %v, want it at +%d", sites, err, test.at)
			}
		})
	}
}

func TestEntriesOfClones(t *testing.T) {
	f := finderOf(t, imageOf(t, nil,
		routine{"_ZN1A1bEv", "55c3"}, routine{"_ZN1A1bEi.constprop.0", "4155c3"}, routine{"_ZN1A1bEv.cold", "0f0b"},
		routine{"_ZN1A1bEv.part.0", "55c3"}, routine{"_ZN1A1cEv.part.0", "55c3"}, routine{"_ZN1A1dEv", "31ffc3"},
		routine{"_ZN1A1dEi", "55c3"},
	))
	sites, err := f.Entries("A::b")
	if err != nil || len(sites) != 2 || sites[0].Function != "_ZN1A1bEv" || sites[0].Clone != "" ||
		sites[1].Function != "_ZN1A1bEi.constprop.0" || sites[1].Clone != "constprop" {
		t.Errorf("a function with a copy: %+v, %v", sites, err)
	}
	if sites, err := f.Entries("_ZN1A1bEv.part.0"); err != nil || len(sites) != 1 {
		t.Errorf("a part by its name: %+v, %v", sites, err)
	}
	if _, err := f.Entries("A::c"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "_ZN1A1cEv.part.0") {
		t.Errorf("nothing but a part: %v", err)
	}
	if _, err := f.Entries("A::d"); !errors.Is(err, ErrNoSite) || !strings.Contains(err.Error(), "_ZN1A1dEv") {
		t.Errorf("one of two has no site: %v", err)
	}
	if _, err := f.Entries("A::e"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no such function: %v", err)
	}
}

func TestNotes(t *testing.T) {
	notes := elftest.Probe("p", "n", "8@%rdi -4@8(%rsp)", codeAddress+1, 0, 0)
	notes = append(notes, elftest.Probe("p", "n", "8@%rsi", codeAddress, 0, codeAddress+2)...)
	notes = append(notes, elftest.Probe("p", "n", "8@%rsi", codeAddress, 0, codeAddress+2)...)
	notes = append(notes, elftest.Probe("p", "m", "", codeAddress+3, 0, 0)...)
	f := finderOf(t, imageOf(t, notes, routine{"f", "90 0f1f440000 c3"}))
	sites, err := f.Notes("p", "n")
	if err != nil || len(sites) != 2 {
		t.Fatalf("%+v, %v", sites, err)
	}
	a, b := sites[0], sites[1]
	if a.Address != codeAddress || a.Offset != codeOffset || a.RefCtrOffset != codeOffset+2 || a.Kind != Nop ||
		!a.Emulated ||
		a.Function != "f" || len(a.Args) != 1 || a.Args[0].Reg != elffile.RSI {
		t.Errorf("first site: %+v", a)
	}
	if b.Address != codeAddress+1 || b.RefCtrOffset != 0 || b.Kind != Nop5 || b.Emulated || len(b.Args) != 2 {
		t.Errorf("second site: %+v", b)
	}
	if _, err := f.Notes("q", "n"); !errors.Is(err, ErrNotFound) {
		t.Errorf("another provider: %v", err)
	}
}

func TestVariable(t *testing.T) {
	image := elftest.Image{Machine: elf.EM_X86_64, Sections: elftest.Symbols(elf.SHT_SYMTAB,
		elftest.Symbol{Name: "clock", Value: 0x7000, Size: 8, Type: elf.STT_OBJECT, Local: true},
		elftest.Symbol{Name: "code", Value: 0x5000, Size: 8},
		elftest.Symbol{Name: "elsewhere", Type: elf.STT_OBJECT, Undefined: true},
	)}
	f := finderOf(t, image.Bytes())
	if at, err := f.Variable("clock"); at != 0x7000 || err != nil {
		t.Errorf("at %#x, %v", at, err)
	}
	for _, name := range []string{"code", "elsewhere", "nothing", ""} {
		if at, err := f.Variable(name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: at %#x, %v", name, at, err)
		}
	}
}

func TestOtherMachine(t *testing.T) {
	image := imageOf(t, elftest.Probe("p", "n", "", codeAddress, 0, 0), routine{"f", "1f2003d5"})
	image[18] = byte(elf.EM_AARCH64) // e_machine
	f := finderOf(t, image)
	if sites, err := f.Notes("p", "n"); err != nil || len(sites) != 1 || sites[0].Kind != Nop {
		t.Errorf("notes: %+v, %v", sites, err)
	}
	if _, err := f.Entries("f"); !errors.Is(err, ErrMachine) {
		t.Errorf("entries: %v", err)
	}
	if _, err := f.AfterCalls(Calls{Callee: "f"}); !errors.Is(err, ErrMachine) {
		t.Errorf("calls: %v", err)
	}
}

// Any file gives sites in its code or an error.
func FuzzFinder(f *testing.F) {
	notes := elftest.Probe("p", "n", "8@%rdi", codeAddress, 0, 0)
	image := imageOf(f, notes, routine{"f", "55 4889e5 5d c3"}, routine{"g", "e8f5ffffff 85c0 7400 c3"},
		routine{"f.part.0", "90"})
	f.Add(image[:codeOffset+32], image[codeOffset+32:])
	f.Fuzz(func(t *testing.T, head, tail []byte) {
		image := append(head, tail...)
		r := bytes.NewReader(image)
		file, err := elffile.Open(r, r.Size())
		if err != nil {
			return
		}
		finder := New(file, r)
		check := func(sites []Site, err error) {
			if (err == nil) != (len(sites) > 0) {
				t.Fatalf("%+v, %v", sites, err)
			}
			for _, s := range sites {
				if offset, ok := file.AddressToOffset(s.Address); !ok || offset != s.Offset {
					t.Fatalf("%+v is at offset %#x", s, offset)
				}
			}
		}
		check(finder.Notes("p", "n"))
		check(finder.Entries("f"))
		returns, err := finder.AfterCalls(Calls{Callee: "f"})
		check(returns.Sites, err)
		if finder.OwnsStack(codeAddress) == nil {
			if r, err := file.FunctionAround(codeAddress); err != nil || r.Start > codeAddress || r.End <= codeAddress {
				t.Fatalf("%+v owns its stack, %v", r, err)
			}
		}
	})
}
