package javaheap

import "testing"

func TestNewShape(t *testing.T) {
	array := func(tag, header, shift uint32) int32 { return int32(tag<<30 | header<<16 | 8<<8 | shift) }
	for _, test := range []struct {
		helper int32
		want   Shape
		ok     bool
	}{
		{24, Shape{Size: 24}, true},
		{25, Shape{Size: 24}, true}, // slow to allocate
		{8, Shape{Size: 8}, true},
		{1, Shape{}, false},
		{0, Shape{Array: true}, false},
		{array(3, 16, 0), Shape{Array: true, Header: 16}, true},
		{array(2, 12, 2), Shape{Array: true, Header: 12, Shift: 2}, true},
		{array(3, 16, 3), Shape{Array: true, Header: 16, Shift: 3}, true},
		{array(3, 16, 4), Shape{Array: true, Header: 16, Shift: 4}, false},
		{array(2, 0, 2), Shape{Array: true, Shift: 2}, false},
	} {
		if got, ok := NewShape(test.helper); ok != test.ok || ok && got != test.want {
			t.Errorf("%#x: %+v, %v, want %+v, %v", uint32(test.helper), got, ok, test.want, test.ok)
		}
	}
	for _, test := range []struct {
		shape             Shape
		length, alignment uint32
		want              uint64
	}{
		{Shape{Size: 24}, 99, 8, 24},
		{Shape{Size: 24}, 0, 32, 32},
		{Shape{Array: true, Header: 16}, 0, 8, 16},
		{Shape{Array: true, Header: 16}, 1, 8, 24},
		{Shape{Array: true, Header: 12, Shift: 2}, 3, 8, 24},
		{Shape{Array: true, Header: 16, Shift: 3}, 1<<31 - 1, 8, 16 + 8*(1<<31-1)},
	} {
		if got := test.shape.Bytes(test.length, test.alignment); got != test.want {
			t.Errorf("%+v of length %d has %d bytes, want %d", test.shape, test.length, got, test.want)
		}
	}
}
