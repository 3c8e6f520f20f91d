package hotspot

import "testing"

func TestNewShape(t *testing.T) {
	array := func(tag, header, shift uint32) int32 { return int32(tag<<30 | header<<16 | 8<<8 | shift) }
	for _, test := range []struct {
		helper int32
		want   shape
		ok     bool
	}{
		{24, shape{size: 24}, true},
		{25, shape{size: 24}, true}, // slow to allocate
		{8, shape{size: 8}, true},
		{1, shape{}, false},
		{0, shape{array: true}, false},
		{array(3, 16, 0), shape{array: true, header: 16}, true},
		{array(2, 12, 2), shape{array: true, header: 12, shift: 2}, true},
		{array(3, 16, 3), shape{array: true, header: 16, shift: 3}, true},
		{array(3, 16, 4), shape{array: true, header: 16, shift: 4}, false},
		{array(2, 0, 2), shape{array: true, shift: 2}, false},
	} {
		if got, ok := newShape(test.helper); ok != test.ok || ok && got != test.want {
			t.Errorf("%#x: %+v, %v, want %+v, %v", uint32(test.helper), got, ok, test.want, test.ok)
		}
	}
	for _, test := range []struct {
		shape             shape
		length, alignment uint32
		want              uint64
	}{
		{shape{size: 24}, 99, 8, 24},
		{shape{size: 24}, 0, 32, 32},
		{shape{array: true, header: 16}, 0, 8, 16},
		{shape{array: true, header: 16}, 1, 8, 24},
		{shape{array: true, header: 12, shift: 2}, 3, 8, 24},
		{shape{array: true, header: 16, shift: 3}, 1<<31 - 1, 8, 16 + 8*(1<<31-1)},
	} {
		if got := test.shape.bytes(test.length, test.alignment); got != test.want {
			t.Errorf("%+v of length %d has %d bytes, want %d", test.shape, test.length, got, test.want)
		}
	}
}
