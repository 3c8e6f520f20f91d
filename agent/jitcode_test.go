package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target/targettest"
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
		{frame: 0x1500, kind: rawKernel}, {frame: targettest.NativeAt(0x1000), kind: rawExact}, {frame: targettest.NativeAt(0x1fff), kind: rawReturn},
		{frame: targettest.NativeAt(0x2000), kind: rawReturn}, {frame: targettest.NativeAt(0xfff), kind: rawReturn}, {frame: compiledFrame, kind: rawReturn}, {kind: rawStale},
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

// A method of a map is the same wherever it was, and not HotSpot's.
func TestMethodOfMap(t *testing.T) {
	f := symbolize.Frame{Function: "JS:f", SystemName: "JS:f", Kind: symbolize.KindJIT, Mapping: jitMapping}
	want := symbolize.Intern(f)
	f.Address = 7
	if got := methodOf(symbolize.Intern(f)); got != want {
		t.Errorf("%+v", got.Value())
	}
}
