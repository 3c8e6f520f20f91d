package javaheap

import "testing"

func TestUncolour(t *testing.T) {
	const object = 0x400_0012_3458
	for name, test := range map[string]struct {
		layout    ObjectLayout
		reference uint64
		want      uint64
	}{
		"no colours": {ObjectLayout{}, object, object},
		"null":       {ObjectLayout{OopIsColoured: true}, 0, 0},
		"bit 12":     {ObjectLayout{OopIsColoured: true}, object<<13 | 1<<12 | 0x540, object},
		"bit 15":     {ObjectLayout{OopIsColoured: true}, object<<16 | 1<<15 | 0x540, object},
		"no bit":     {ObjectLayout{OopIsColoured: true}, 0x540, 0},
		"arm64": {ObjectLayout{OopIsColoured: true, OopColourShift: colourShiftARM64}, object<<16 | 0xf540,
			object},
	} {
		if got := test.layout.Uncolour(test.reference); got != test.want {
			t.Errorf("%s: %#x, want %#x", name, got, test.want)
		}
	}
}
