package debuginfo

import (
	"bytes"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

func TestStream5(t *testing.T) {
	for _, test := range []struct {
		data []byte
		bias uint32
		want uint32
		rest int // bytes left
	}{
		{[]byte{0}, 0, 0, 0},
		{[]byte{191, 7}, 0, 191, 1},
		{[]byte{192, 0}, 0, 192, 0},
		{[]byte{255, 191}, 0, 255 + 191<<6, 0},
		{[]byte{255, 255, 255, 255, 251}, 0, 255*(1+64+64*64+64*64*64) + 251<<24, 0},
		{[]byte{1}, 1, 0, 0},
		{[]byte{191}, 1, 190, 0},
		{[]byte{192, 1}, 1, 191, 0},
	} {
		s := Unsigned5{Data: test.data, Bias: test.bias}
		if got := s.Next(); got != test.want || s.Failed || len(s.Data) != test.rest {
			t.Errorf("% x, bias %d: %d, %d bytes left, failed %v; want %d, %d", test.data, test.bias, got, len(s.Data),
				s.Failed, test.want, test.rest)
		}
	}
}

func TestStream5Fails(t *testing.T) {
	for _, s := range []Unsigned5{{}, {Data: []byte{192}}, {Data: []byte{255, 255, 255, 255}},
		{Data: []byte{0}, Bias: 1}, {Data: []byte{200, 0}, Bias: 1}} {
		data := s.Data
		if n := s.Next(); n != 0 || !s.Failed || len(s.Data) != 0 {
			t.Errorf("% x: %d, failed %v", data, n, s.Failed)
		}
	}
}

func TestStream5Signed(t *testing.T) {
	for want, data := range map[int32]byte{0: 0, -1: 1, 1: 2, -2: 3, 2: 4} {
		if got := (&Unsigned5{Data: []byte{data}}).nextSigned(); got != want {
			t.Errorf("%d: %d, want %d", data, got, want)
		}
	}
}

// FuzzUnsigned5 checks that what was encoded is decoded again, and that decoding always gets on.
func FuzzUnsigned5(f *testing.F) {
	f.Add([]byte{255, 255, 255, 255, 252}, uint32(1<<32-1), true)
	f.Add([]byte{0}, uint32(191), false)
	f.Fuzz(func(t *testing.T, data []byte, n uint32, late bool) {
		bias := uint32(0)
		if late {
			bias = 1
		}
		encoded := vmtest.Unsigned5(n, bias)
		s := Unsigned5{Data: encoded, Bias: bias}
		if got := s.Next(); got != n || s.Failed || len(s.Data) != 0 {
			t.Fatalf("%d is encoded as % x and decoded as %d (bias %d)", n, encoded, got, bias)
		}
		if bias == 1 && bytes.IndexByte(encoded, 0) >= 0 {
			t.Fatalf("%d is encoded as % x, with a zero", n, encoded)
		}
		for s := (Unsigned5{Data: data, Bias: bias}); len(s.Data) > 0; {
			before := len(s.Data)
			if s.Next(); len(s.Data) >= before {
				t.Fatalf("no progress in % x", data)
			}
		}
	})
}
