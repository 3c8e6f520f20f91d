package report

import (
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Counts of windows add up; what was learned goes on growing, and the trees of two programs in one
// window are two.
func TestSumContexts(t *testing.T) {
	line := func(comm string, pid, window int64, samples uint64, nodes int) stored.ProcessContexts {
		l := stored.ProcessContexts{Comm: comm, PID: pid, Window: window,
			Contexts: profile.Contexts{Mode: profile.ContextChain}}
		l.Walked, l.Linked, l.Ambiguous, l.Fitted, l.Unplaced = samples, 10*samples, 3*samples, 2*samples, samples
		l.ByDepth, l.BySite = [3]uint64{samples, 2 * samples, 3 * samples},
			[3]uint64{4 * samples, 5 * samples, 6 * samples}
		l.Nodes, l.Shared, l.Methods = nodes, nodes/2, nodes/5
		return l
	}
	checked := line("java", 1, 2, 2, 30)
	checked.Check = &profile.ContextCheck{Samples: 5, Right: [3]uint64{4, 3, 2}}
	again := line("java", 1, 2, 3, 50)
	again.Check = &profile.ContextCheck{Samples: 1, Right: [3]uint64{1, 1, 1}}
	sums := sumContexts([]stored.ProcessContexts{line("java", 1, 1, 1, 10), line("java", 2, 1, 7, 70), checked, again})
	want1 := line("java", 1, 2, 6, 80)
	want1.Check = &profile.ContextCheck{Samples: 6, Right: [3]uint64{5, 4, 3}}
	want2 := line("java", 2, 1, 7, 70)
	if want := []*processContexts{{want1}, {want2}}; !reflect.DeepEqual(sums, want) {
		t.Errorf("%+v %+v", sums[0], sums[1])
	}
}
