package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/target/targettest"
)

func TestHotAddresses(t *testing.T) {
	code := &jitCode{low: targettest.CodeAt, high: targettest.CodeAt + 0x1000}
	kernel := rawFrame{frame: 0xffffffff81000000, kind: rawKernel}
	var h hotAddresses
	for _, stack := range [][]rawFrame{
		{at(0, rawExact), at(0x40, rawReturn)}, {kernel, at(0, rawExact)}, {at(0x80, rawExact)},
		{{frame: nativeFrame, kind: rawExact}, at(0x80, rawReturn)}, // a library that the code called
		{kernel}, nil,
	} {
		h.add(stack, code)
		h.add(stack, nil)
	}
	if h.all != 6 || len(h.samples) != 2 || h.samples[targettest.CodeAt] != 2 || h.samples[targettest.CodeAt+0x80] != 1 {
		t.Errorf("%+v", h)
	}
	h.fade(0.5)
	if h.all != 3 || h.samples[targettest.CodeAt] != 1 {
		t.Errorf("faded to %+v", h)
	}
	for range 10 {
		h.fade(0.5)
	}
	if len(h.samples) != 0 {
		t.Errorf("%v is left of what was long ago", h.samples)
	}
}
