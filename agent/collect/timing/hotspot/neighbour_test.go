package hotspot

import (
	"reflect"
	"runtime"
	"slices"
	"testing"
)

func TestTightLoops(t *testing.T) {
	const at = 0x1000
	nops := func(n int) []byte { return slices.Repeat([]byte{0x90}, n) }
	for name, test := range map[string]struct {
		code []byte
		want []tight
	}{
		// inc eax; jne -4
		"short":     {slices.Concat(nops(5), []byte{0xff, 0xc0, 0x75, 0xfc}), []tight{{0x1005, 0x1009}}},
		"loop":      {slices.Concat(nops(2), []byte{0xe2, 0xfd}), []tight{{0x1001, 0x1004}}},
		"to itself": {[]byte{0xeb, 0xfe}, []tight{{0x1000, 0x1002}}},
		"forward":   {[]byte{0x75, 0x02, 0x90, 0x90, 0x90}, nil},
		// The target is before the code.
		"before": {[]byte{0x90, 0xeb, 0xf0}, nil},
		// The call is to the code's beginning.
		"call": {slices.Concat(nops(3), []byte{0xe8, 0xf8, 0xff, 0xff, 0xff}), nil},
		// jne -134
		"long": {slices.Concat(nops(tightLoop), []byte{0x0f, 0x85, 0x7a, 0xff, 0xff, 0xff}), nil},
		// jne -127
		"long enough":  {slices.Concat(nops(tightLoop), []byte{0x75, 0x81}), []tight{{0x1003, 0x1000 + 130}}},
		"calls":        {[]byte{0x90, 0xff, 0xd0, 0xeb, 0xfb}, nil},
		"data":         {[]byte{0x06, 0xeb, 0xfd}, nil}, // no instruction of 64-bit mode
		"cut":          {[]byte{0x0f, 0x85, 0x7a}, nil},
		"nothing":      {nil, nil},
		"before data":  {[]byte{0xeb, 0xfe, 0x06}, []tight{{0x1000, 0x1002}}},
		"jump forward": {[]byte{0xe9, 0, 0, 0, 0x70}, nil},
	} {
		if got := tightLoops(test.code, at); !slices.Equal(got, test.want) {
			t.Errorf("%s: %#x, want %#x", name, got, test.want)
		}
	}
}

func TestTightBeside(t *testing.T) {
	l := tight{0x1070, 0x1088} // in two lines
	for address, want := range map[uint64]bool{
		0xfff: false, 0x1000: true, 0x103f: true, 0x1040: true, 0x106f: true, 0x1070: false, 0x1087: false,
		0x1088: true, 0x10bf: true, 0x10c0: false,
	} {
		if got := l.beside(address); got != want {
			t.Errorf("%#x beside a loop at %#x: %v", address, l, got)
		}
	}
	for i, test := range []struct {
		loops          []tight
		places, others []uint64
		want           bool
	}{
		{nil, []uint64{0x1088}, nil, false},
		{[]tight{l}, nil, nil, false},
		{[]tight{{1, 2}, l}, []uint64{0x2000, 0x1088}, nil, true},
		{[]tight{l}, []uint64{0x2000}, []uint64{0x1088}, true},
		{[]tight{l}, []uint64{0x1070}, []uint64{0x1088}, false}, // the loop that is timed
		{[]tight{l}, []uint64{0x2000}, []uint64{0x1070}, false},
	} {
		if got := besideAny(test.loops, test.places, test.others); got != test.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
}

// The loop that the cost of traps is measured with is not next to the breakpoint at the entry, but
// it is next to the one that is set to measure that.
func TestTurn(t *testing.T) {
	beside := besideTurn()
	if runtime.GOARCH != "amd64" {
		if beside != 0 {
			t.Errorf("%#x: only instructions of amd64 are decoded", beside)
		}
		return
	}
	at := uint64(reflect.ValueOf(turn).Pointer())
	loops := tightLoops(codeAt(turn), at)
	if len(loops) == 0 || beside == 0 {
		t.Fatalf("no loop in the code at %#x", at)
	}
	if entry := uint64(reflect.ValueOf(spin).Pointer()); loops[0].beside(entry) || !loops[0].beside(beside) {
		t.Errorf("loop at %#x, entry at %#x, breakpoint next to it at %#x", loops[0], entry, beside)
	}
}
