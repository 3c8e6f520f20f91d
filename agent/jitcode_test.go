package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

func TestMayBeJIT(t *testing.T) {
	for _, tt := range []struct {
		mapping *proc.Mapping
		want    bool
	}{
		{nil, true},
		{&proc.Mapping{}, true},
		{&proc.Mapping{Path: "[anon:v8]"}, true},
		{&proc.Mapping{Path: "//anon"}, true},
		{&proc.Mapping{Path: "[vdso]"}, false},
		{&proc.Mapping{Path: "[vsyscall]"}, false},
		{&proc.Mapping{Path: "/usr/bin/node", Inode: 7}, false},
		{&proc.Mapping{Path: "/usr/bin/node", Inode: 7, Deleted: true}, false},
		{&proc.Mapping{Path: "/memfd:doublemapper", Inode: 7, Deleted: true}, true},
		{&proc.Mapping{Path: "/dev/zero", Inode: 7, Deleted: true}, true},
		{&proc.Mapping{Path: "/SYSV00000000", Inode: 7, Deleted: true}, true},
		{&proc.Mapping{Path: "/dev/zero", Inode: 7}, false},
	} {
		if got := mayBeJIT(tt.mapping); got != tt.want {
			t.Errorf("%+v: %t", tt.mapping, got)
		}
	}
}

// Frames are told from those that came before other code was there, and only frames of that code.
func TestJITCodeMark(t *testing.T) {
	code := &jitCode{low: 0x1000, high: 0x2000, epoch: 7}
	stack := []rawFrame{
		{frame: 0x1500, kind: rawKernel}, {frame: nativeAt(0x1000), kind: rawExact}, {frame: nativeAt(0x1fff), kind: rawReturn},
		{frame: nativeAt(0x2000), kind: rawReturn}, {frame: nativeAt(0xfff), kind: rawReturn}, {frame: jit(1, 0x1500), kind: rawReturn}, {kind: rawStale},
	}
	(*jitCode)(nil).mark(stack)
	for i, r := range stack {
		if r.epoch != 0 {
			t.Errorf("frame %d is marked without code", i)
		}
	}
	code.mark(stack)
	for i, r := range stack {
		if want := map[int]uint32{1: 7, 2: 7}[i]; r.epoch != want {
			t.Errorf("frame %d has epoch %d, want %d", i, r.epoch, want)
		}
	}
}

// The drainer marks frames as it gets them, and has the map read on when it is time, though it knows all frames.
func TestDrainerFollowsMap(t *testing.T) {
	a, _ := testAgent()
	a.engines = &callEngines{agent: a}
	a.engines.runFake(calls.Listener)
	a.sources.then = []source{a.engines}
	id, frame := identity{100, 5, 1}, at(0, rawExact)
	a.handle(sampleRecord(id, frame.frame))
	p := a.table[100]
	for _, c := range []struct {
		code  jitCode
		dirty bool
	}{
		{jitCode{epoch: 7, again: 1 << 62}, true}, // the frame is a new one
		{jitCode{epoch: 7, again: 1 << 62}, false},
		{jitCode{epoch: 7}, true},
	} {
		clear(a.dirty)
		c.code.low, c.code.high = codeAt, codeAt+0x1000
		p.code.Store(&c.code)
		a.handle(sampleRecord(id, frame.frame))
		if _, dirty := a.dirty[p]; dirty != c.dirty {
			t.Errorf("%+v: to be worked on: %t", c.code, dirty)
		}
	}
	marked := frame
	marked.epoch = 7
	if _, ok := p.requested[marked]; !ok || len(p.requested) != 2 {
		t.Errorf("requested are %v", p.requested)
	}
	if p.hot.samples[codeAt] != 3 {
		t.Errorf("%+v is hot", p.hot)
	}
}

func TestHotAddresses(t *testing.T) {
	code := &jitCode{low: codeAt, high: codeAt + 0x1000}
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
	if h.all != 6 || len(h.samples) != 2 || h.samples[codeAt] != 2 || h.samples[codeAt+0x80] != 1 {
		t.Errorf("%+v", h)
	}
	h.fade(0.5)
	if h.all != 3 || h.samples[codeAt] != 1 {
		t.Errorf("faded to %+v", h)
	}
	for range 10 {
		h.fade(0.5)
	}
	if len(h.samples) != 0 {
		t.Errorf("%v is left of what was long ago", h.samples)
	}
}

// A method of a map is the same wherever it was, and not HotSpot's.
func TestMethodOfMap(t *testing.T) {
	f := symbolize.Frame{Function: "JS:f", SystemName: "JS:f", Kind: symbolize.KindJIT, Mapping: jitMapping}
	want := symbolize.Intern(f)
	f.Address = 7
	if got := methodOf(symbolize.Intern(f)); got != want {
		t.Errorf("%+v", got.Value())
	}
}
