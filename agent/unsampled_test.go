package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// A chosen process without samples is still in the profile, because its notes may say why it has
// none.
func TestUnsampled(t *testing.T) {
	sampled, idle, unchosen := fold.NewProcess(proc.Identity{PID: 7}, true),
		fold.NewProcess(proc.Identity{PID: 8}, true), fold.NewProcess(proc.Identity{PID: 10}, true)
	a, w := testAgent()
	a.opt.PIDs = []int{7, 8, 9, 8}
	for _, p := range []*fold.Process{sampled, idle, unchosen} {
		a.state().Table[p.PID] = p
	}
	w.Processes[sampled] = map[fold.ThreadKey]*fold.Thread{}
	if got := a.unsampled(w); len(got) != 1 || got[0] != idle {
		t.Errorf("got %d processes, want the one of pid 8", len(got))
	}
	if got := a.unsampled(fold.NewWindow(map[int]bool{7: true})); len(got) != 1 || got[0] != sampled {
		t.Errorf("a window of pid 7 has %d others, want that one", len(got))
	}
	a.opt.PIDs = nil
	if got := a.unsampled(w); len(got) != 0 {
		t.Errorf("%d processes of a whole machine are named without samples", len(got))
	}
}
