package calldata

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

func TestInvokes(t *testing.T) {
	for _, test := range []struct {
		name     string
		code     []byte
		want     []Invoke
		complete bool
	}{
		{"none", []byte{0, 177}, nil, true}, // nop, return
		{"native", nil, nil, true},
		{"all kinds", []byte{
			184, 1, 0, 183, 2, 0, 182, 3, 1, 185, 4, 0, 1, 0, 186, 5, 0, 0, 0, 186, 0xf9, 0xff, 0xff, 0xff, 227, 7, 0,
			233, 8, 0, 177,
		}, []Invoke{
			{0, vmruntime.StaticCall, 184, 1},
			{3, vmruntime.SpecialCall, 183, 2},
			{6, vmruntime.VirtualCall, 182, 0x103},
			{9, vmruntime.InterfaceCall, 185, 4},
			{14, vmruntime.DynamicCall, 186, 5},
			{19, vmruntime.DynamicCall, 186, 6}, // negated, up to JDK 22
			{24, vmruntime.VirtualCall, 227, 7},
			{27, vmruntime.DynamicCall, 233, 8},
		}, true},
		// A fused pair: the getfield is still there, and is a fast one.
		{"fused", []byte{221, 208, 1, 0, 184, 2, 0, 177}, []Invoke{{4, vmruntime.StaticCall, 184, 2}}, true},
		{"wide", []byte{196, 21, 1, 0, 196, 132, 1, 0, 0, 5, 184, 2, 0}, []Invoke{{10, vmruntime.StaticCall, 184, 2}},
			true},
		{"tableswitch", []byte{ // at 1: two bytes of padding, default, 5 to 6, two targets
			0, 170, 0, 0, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 9, 0, 0, 0, 9, 184, 2, 0,
		}, []Invoke{{24, vmruntime.StaticCall, 184, 2}}, true},
		{"lookupswitch", []byte{ // at 3: no padding, default, one pair
			0, 0, 0, 171, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 9, 184, 2, 0,
		}, []Invoke{{20, vmruntime.StaticCall, 184, 2}}, true},
		{"fast switch", []byte{0, 0, 0, 229, 0, 0, 0, 9, 0, 0, 0, 0, 184, 2, 0},
			[]Invoke{{12, vmruntime.StaticCall, 184, 2}}, true},
		{"breakpoint", []byte{184, 1, 0, 202, 184, 2, 0}, []Invoke{{0, vmruntime.StaticCall, 184, 1}}, false},
		{"cut off", []byte{184, 1, 0, 184, 2}, []Invoke{{0, vmruntime.StaticCall, 184, 1}}, false},
		{"endless switch", []byte{0, 0, 0, 171, 0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff}, nil, false},
		{"inverted switch", []byte{0, 0, 0, 170, 0, 0, 0, 9, 0x7f, 0xff, 0xff, 0xff, 0x80, 0, 0, 0}, nil, false},
		{"no instruction", []byte{255}, nil, false},
	} {
		got, complete := Invokes(test.code)
		if !slices.Equal(got, test.want) || complete != test.complete {
			t.Errorf("%s: %v, %v; want %v, %v", test.name, got, complete, test.want, test.complete)
		}
	}
}

func TestMonitorEnters(t *testing.T) {
	// A wide instruction and a call have the number of monitorenter as an operand.
	code := []byte{194, 42, 194, 195, 196, 21, 194, 194, 184, 194, 0, 194, 177}
	if got := MonitorEnters(code, 9); !slices.Equal(got, []uint16{0, 2, 11}) {
		t.Errorf("%v", got)
	}
	if got := MonitorEnters(code, 2); !slices.Equal(got, []uint16{0, 2}) {
		t.Errorf("the first two are %v", got)
	}
	if got := MonitorEnters([]byte{194, 255, 194}, 9); !slices.Equal(got, []uint16{0}) {
		t.Errorf("before what is no instruction: %v", got)
	}
}

// FuzzInvokes: calls are in the code, in order, and do not overlap; what follows complete code
// changes nothing.
func FuzzInvokes(f *testing.F) {
	f.Add([]byte{170, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 184, 0, 0})
	f.Add([]byte{196, 132})
	f.Add([]byte{171})
	f.Fuzz(func(t *testing.T, code []byte) {
		calls, complete := Invokes(code)
		next := 0
		for _, c := range calls {
			if c.BCI < next || c.BCI+3 > len(code) || c.Kind == 0 {
				t.Fatalf("call %+v after %d", c, next)
			}
			next = c.BCI + 3
		}
		if again, _ := Invokes(append(code[:len(code):len(code)], OpInvokeStatic, 1, 0)); complete &&
			len(again) != len(calls)+1 {
			t.Fatalf("%d calls, and %d with one more", len(calls), len(again))
		}
	})
}
