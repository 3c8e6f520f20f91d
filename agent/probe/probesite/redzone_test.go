package probesite

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// A NOP of five bytes is safe in functions that make calls themselves, and nowhere else.
func TestOwnsStack(t *testing.T) {
	const nop = "0f1f440000"
	for _, test := range []struct {
		name, code string
		want       string // in the error; "" if it is safe
	}{
		{"call before", "4883ec08 e810000000" + nop + "4883c408 c3", ""},
		{"call behind", "4883ec08" + nop + "e810000000 4883c408 c3", ""},
		{"call through a register", "50" + nop + "ffd0 58 c3", ""},
		{"call through memory", "50" + nop + "ff1500100000 58 c3", ""},
		{"call of what does not return, in a branch", "85ff 7406" + nop + "c3 50 e810000000", ""},
		{"itself", "85ff 7401 c3 50" + nop + "e8f0ffffff 58 c3", ""},
		{"frame pointer", "55 4889e5 4883ec10 897dfc" + nop + "e810000000 c9 c3", ""},
		{"frame pointer, 128 bytes", "55 4889e5 53 4883c480 48894580" + nop + "e810000000 c9 c3", ""},
		{"realigned", "55 4889e5 4883e4e0 4883ec20 48897dc8" + nop + "e810000000 c9 c3", ""},

		{"leaf", nop + "c3", "calls no other"},
		{"leaf with the stack pointer lowered", "4883ec10 48897c2408" + nop + "4883c410 c3", "calls no other"},
		{"tail call", nop + "e910000000", "calls no other"},
		{"tail call through a register", nop + "ffe0", "calls no other"},
		{"-mfentry", "e810000000" + nop + "c3", "calls no other"},
		{"-mfentry behind endbr64", "f30f1efa e810000000" + nop + "c3", "calls no other"},
		{"call of the next instruction", "90 e800000000 58" + nop + "c3", "calls no other"},
		{"red zone", "4883ec10 48897c24f8" + nop + "e810000000 4883c410 c3", "below the stack pointer"},
		{"red zone, with AVX", "4883ec10 c5fd7f4424c0" + nop + "e810000000 4883c410 c3", "below the stack pointer"},
		{"red zone, by its address", "488d4424c0" + nop + "50 e810000000 58 c3", "below the stack pointer"},
		{"stepped over the red zone", "488d6424 80" + nop + "e810000000 488da42480000000 c3", ""},
		{"red zone below the frame pointer", "55 4889e5 48897df8" + nop +
			"488d6424 80 e810000000 488da42480000000 5d c3", "below the stack pointer"},
		{"cannot be decoded", "50 e810000000" + nop + "06 58 c3", "cannot be decoded"},
		{"inside of an instruction", "50 e810000000 48b8" + nop + "000000 58 c3", "no instruction"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code := unhex(t, test.code)
			f := finderOf(t, imageOf(t, nil, routine{"before", "e810000000c3"}, routine{"f", test.code},
				routine{"behind", "e810000000c3"}))
			at := bytes.Index(code, nop5)
			err := f.OwnsStack(codeAddress + 6 + uint64(at))
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (!errors.Is(err, ErrRedZone) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want one with %q", err, test.want)
			}
		})
	}
	t.Run("no bounds", func(t *testing.T) {
		f := finderOf(t, imageOf(t, nil, routine{"f", nop + "c3"}))
		if err := f.OwnsStack(codeAddress + 100); !errors.Is(err, ErrRedZone) {
			t.Errorf("%v, want %v", err, ErrRedZone)
		}
	})
}

// The instructions that a kernel may replace.
func TestNeedsOwnStack(t *testing.T) {
	for code, want := range map[string]bool{
		"90": false, "55": false, "eb00": true, "eb01": false, "c3": false, "f390": false, "4990": false,
		"0f1ec0": false,
		"4889c0": true, "4889c1": false, "4989c0": false, "488d642400": true, "488d642408": false, "e900000000": true,
		"e901000000": false,
		"0f1f440000": true, "660f1f4000": true, "6690": true, "662e0f1f840000000000": true,
	} {
		i, err := Decode(unhex(t, code))
		if err != nil {
			t.Fatal(err)
		}
		if got := i.NeedsOwnStack(); got != want {
			t.Errorf("%s is a %v, and needs a stack of its own: %v", code, i.Kind, got)
		}
	}
}

// Every probe of libjvm is on the NOP of one byte, so no kernel changes more than that byte. Probes
// in functions with calls would be safe on a longer one, too, but compilers could change that.
func TestLiveNotesOfLibjvm(t *testing.T) {
	onEach(t, func(t *testing.T, _ int, f *Finder) {
		probes, err := f.file.Probes()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range probes {
			k, err := KindAt(f.file.Machine(), f.bytes, p.Offset)
			if err != nil || k != Nop {
				t.Errorf("%s:%s at %#x: %v, %v", p.Provider, p.Name, p.Location, k, err)
			}
		}
		for _, name := range []string{"compiled__method__load", "compiled__method__unload", "class__unloaded"} {
			sites, err := f.Notes("hotspot", name)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sites {
				t.Logf("%s in %s: %v; on a longer NOP: %v", name, s.Function, s.Kind, f.OwnsStack(s.Address))
			}
		}
		t.Logf("%d sites", len(probes))
	})
}
