package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/agent/target/targettest"
)

func TestHotAddresses(t *testing.T) {
	code := &target.JITCode{Low: targettest.CodeAt, High: targettest.CodeAt + 0x1000}
	kernel := target.RawFrame{Frame: 0xffffffff81000000, Kind: target.RawKernel}
	at := func(offset uint64, kind target.RawKind) target.RawFrame {
		return target.RawFrame{Frame: targettest.NativeAt(targettest.CodeAt + offset), Kind: kind}
	}
	var h HotAddresses
	for _, stack := range [][]target.RawFrame{
		{at(0, target.RawExact), at(0x40, target.RawReturn)}, {kernel, at(0, target.RawExact)}, {at(0x80, target.RawExact)},
		{{Frame: targettest.NativeAt(0x7f0000001000), Kind: target.RawExact}, at(0x80, target.RawReturn)}, // a library that the code called
		{kernel}, nil,
	} {
		h.Add(stack, code)
		h.Add(stack, nil)
	}
	if h.All != 6 || len(h.Samples) != 2 || h.Samples[targettest.CodeAt] != 2 || h.Samples[targettest.CodeAt+0x80] != 1 {
		t.Errorf("%+v", h)
	}
	h.Fade(0.5)
	if h.All != 3 || h.Samples[targettest.CodeAt] != 1 {
		t.Errorf("faded to %+v", h)
	}
	for range 10 {
		h.Fade(0.5)
	}
	if len(h.Samples) != 0 {
		t.Errorf("%v is left of what was long ago", h.Samples)
	}
}
