package target

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
	code := &JITCode{Low: 0x1000, High: 0x2000, Epoch: 7}
	stack := []RawFrame{
		{Frame: 0x1500, Kind: RawKernel}, {Frame: targettest.NativeAt(0x1000), Kind: RawExact}, {Frame: targettest.NativeAt(0x1fff), Kind: RawReturn},
		{Frame: targettest.NativeAt(0x2000), Kind: RawReturn}, {Frame: targettest.NativeAt(0xfff), Kind: RawReturn}, {Frame: compiledFrame, Kind: RawReturn}, {Kind: RawStale},
	}
	(*JITCode)(nil).Mark(stack)
	for i, r := range stack {
		if r.Epoch != 0 {
			t.Errorf("frame %d is marked without code", i)
		}
	}
	code.Mark(stack)
	for i, r := range stack {
		if want := map[int]uint32{1: 7, 2: 7}[i]; r.Epoch != want {
			t.Errorf("frame %d has epoch %d, want %d", i, r.Epoch, want)
		}
	}
}

// A method of a map is the same wherever it was, and not HotSpot's.
func TestMethodOfMap(t *testing.T) {
	f := symbolize.Frame{Function: "JS:f", SystemName: "JS:f", Kind: symbolize.KindJIT, Mapping: jitMapping}
	want := symbolize.Intern(f)
	f.Address = 7
	if got := MethodOf(symbolize.Intern(f)); got != want {
		t.Errorf("%+v", got.Value())
	}
}
