package bpf

import "testing"

func TestFrame(t *testing.T) {
	for _, test := range []struct {
		frame  Frame
		kind   FrameKind
		text   string
		id     uint32
		offset uint32
		pc     uint64
		method uint64
		bci    int32
	}{
		{frame: 1<<60 | 0xabcdef1<<32 | 0xffff_fff0, kind: FrameJIT, id: 0xabcdef1, offset: 0xffff_fff0,
			text: "jit{id 180150001, code+0xfffffff0}"},
		{frame: 2<<60 | 0x123, kind: FrameStub, offset: 0x123, text: "stub{code+0x123}"},
		{frame: 3<<60 | 0x7f12_3456_7890>>3<<16 | 17, kind: FrameInterpreted, method: 0x7f12_3456_7890, bci: 17,
			text: "interpreted{0x7f1234567890, bci 17}"},
		{frame: 3<<60 | 0x7fff_ffff_fff8>>3<<16 | 0xffff, kind: FrameInterpreted, method: 0x7fff_ffff_fff8, bci: -1,
			text: "interpreted{0x7ffffffffff8, bci -1}"},
		{frame: 3<<60 | 65534, kind: FrameInterpreted, bci: 65534, text: "interpreted{0x0, bci 65534}"},
		{frame: 4<<60 | 0x7fff_ffff_ffff, kind: FrameNative, pc: 0x7fff_ffff_ffff, text: "native{0x7fffffffffff}"},
		{frame: 0x77, kind: 0, text: "frame{0x77}"},
	} {
		f := test.frame
		if f.Kind() != test.kind || f.String() != test.text {
			t.Errorf("%#x is %v of kind %d, want %s of kind %d", uint64(f), f, f.Kind(), test.text, test.kind)
		}
		switch test.kind {
		case FrameJIT:
			if f.CompileID() != test.id || f.CodeOffset() != test.offset {
				t.Errorf("%v: id %#x, offset %#x", f, f.CompileID(), f.CodeOffset())
			}
		case FrameInterpreted:
			if f.Method() != test.method || f.BCI() != test.bci {
				t.Errorf("%v: method %#x, bci %d", f, f.Method(), f.BCI())
			}
		case FrameNative:
			if f.PC() != test.pc {
				t.Errorf("%v: pc %#x", f, f.PC())
			}
		}
	}
}

// Every end has a name, and only three are no truncation.
func TestWalkEnd(t *testing.T) {
	seen := map[string]WalkEnd{}
	for e := range EndCount {
		name := e.String()
		if other, ok := seen[name]; ok || name == "" {
			t.Errorf("end %d is named %q, like end %d", e, name, other)
		}
		seen[name] = e
		if e.Truncated() != (e != EndNone && e != EndRoot && e != EndKnown) {
			t.Errorf("%v: truncated is %v", e, e.Truncated())
		}
	}
	if s := EndCount.String(); s != "reason 19" {
		t.Errorf("an end unknown here is named %q", s)
	}
}
