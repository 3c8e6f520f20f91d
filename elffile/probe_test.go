package elffile

import (
	"debug/elf"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestProbes(t *testing.T) {
	probes, err := open(t, fixture()).Probes()
	if err != nil {
		t.Fatal(err)
	}
	want := []Probe{
		{Provider: "vm", Name: "start", Location: 0x1010, Offset: 0x1010, Args: []Operand{
			{Kind: OperandReg, Size: 8, Reg: RDI}, {Kind: OperandMem, Size: -4, Reg: RBP, Disp: -8}}},
		{Provider: "vm", Name: "stop", Location: 0x1020, Offset: 0x1020, Semaphore: 0x2110, SemaphoreOffset: 0x1110},
	}
	if !reflect.DeepEqual(probes, want) {
		t.Errorf("probes %+v, want %+v", probes, want)
	}
}

// withNotes is the fixture with other probe notes.
func withNotes(notes ...[]byte) elftest.Image {
	image := fixture()
	for i := range image.Sections {
		if s := &image.Sections[i]; s.Name == ".note.stapsdt" {
			s.Data = slices.Concat(notes...)
		}
	}
	return image
}

func TestProbesMovedByPrelink(t *testing.T) {
	// The notes were made when the base was at 0x13000; since then everything moved down by
	// 0x10000.
	probes, err := open(t, withNotes(elftest.Probe("vm", "start", "", 0x11010, 0x13000, 0x12110))).Probes()
	if err != nil || len(probes) != 1 {
		t.Fatalf("probes %v, %v", probes, err)
	}
	if p := probes[0]; p.Location != 0x1010 || p.Semaphore != 0x2110 || p.SemaphoreOffset != 0x1110 {
		t.Errorf("probe %+v", p)
	}
}

func TestProbesLeavesOut(t *testing.T) {
	probes, err := open(t, withNotes(
		elftest.Probe("vm", "in_data", "", 0x2110, 0x3000, 0),
		elftest.Probe("vm", "nowhere", "", 0x9000, 0x3000, 0),
		elftest.Probe("vm", "semaphore_nowhere", "", 0x1010, 0x3000, 0x9000),
		elftest.Note("other", noteStap, []byte{1}),
		elftest.Probe("vm", "bad_operand", "8@%xmm0 8@%rax", 0x1010, 0x3000, 0),
	)).Probes()
	if err != nil || len(probes) != 1 || probes[0].Name != "bad_operand" {
		t.Fatalf("probes %+v, %v, want bad_operand", probes, err)
	}
	if args := probes[0].Args; len(args) != 2 || args[0].Err == nil || args[1].Reg != RAX {
		t.Errorf("operands %+v", args)
	}
}

func TestProbesRefuses(t *testing.T) {
	unterminated := append(make([]byte, 24), "vm\x00start\x008@%rax"...)
	for name, note := range map[string][]byte{
		"descriptor of 3 bytes": elftest.Note("stapsdt", noteStap, []byte{1, 2, 3}),
		"no strings":            elftest.Note("stapsdt", noteStap, make([]byte, 24)),
		"unterminated":          elftest.Note("stapsdt", noteStap, unterminated),
		"length past the end":   {8, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 3, 0, 0, 0, 's', 't', 'a', 'p', 's', 'd', 't', 0},
	} {
		if probes, err := open(t, withNotes(note)).Probes(); probes != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v, want %v", name, probes, err, ErrMalformed)
		}
	}
	image := withNotes(nil)
	for i := range image.Sections {
		if s := &image.Sections[i]; s.Name == ".note.stapsdt" {
			s.Header.Size = maxNotes + 1
		}
	}
	if _, err := open(t, image).Probes(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v, want %v", err, ErrTooLarge)
	}
	if probes, err := open(t, elftest.Image{Machine: elf.EM_X86_64}).Probes(); probes != nil || err != nil {
		t.Errorf("file without probes: %v, %v", probes, err)
	}
}
