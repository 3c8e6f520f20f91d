package events

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

func TestFind(t *testing.T) {
	const method = "guest.Away.selects"
	var rows []Row
	for i, cause := range []string{"poll", "idle", "runnable", "safepoint", "vm call", "vm", "pipe", ""} {
		r := Row{Labels: Labels{Cause: cause}, Values: []float64{1, float64(int(1) << i)}}
		r.Frames = []stacks.Frame{{Function: method}}
		rows = append(rows, r)
	}
	rows = append(rows, Row{Labels: Labels{Cause: "poll"}, Values: []float64{1, 1 << 20}})
	f := OffCPU{Method: method, Cause: "poll"}.Find(rows, 1)
	if len(f.Rows) != 8 || f.Time != 255 || f.Right != 1+2 || f.Delayed != 4+8 || f.VMCall != 16 || f.VM != 32 ||
		f.Wrong() != 64+128 {
		t.Errorf("%+v, wrong %v", f, f.Wrong())
	}
	if f := (OffCPU{Method: method, Cause: "runnable"}.Find(rows, 1)); f.Right != 4 || f.Delayed != 8 {
		t.Errorf("of one that waits for a CPU: %+v", f)
	}
}
