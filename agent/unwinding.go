package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// reportUnwinding adds what the kernel side and the agent counted of unwind tables.
func (a *Agent) reportUnwinding(c *bpf.Counts, s *profile.Stats) {
	tables := a.tables.Stats()
	s.UnwindFrames, s.UnwindLookups = c[bpf.UnwindFrames], c[bpf.UnwindMisses]
	s.UnwindTables, s.UnwindBytes = tables.Tables, tables.Bytes
	s.UnwindLosses = tables.Losses
	for cause, n := range map[string]uint64{
		"no_table_yet": c[bpf.UnwindUntabled], "code_changed": c[bpf.UnwindStale], "table_gone": c[bpf.UnwindGone],
		"unsupported_rule": c[bpf.UnwindUnsupported], "broken_stack": c[bpf.UnwindBroken],
		"no_room": c[bpf.UnwindRefused], "young_process": c[bpf.UnwindYoung],
	} {
		s.UnwindLosses[cause] = n
	}
}

// unwindingFailed counts a panic of what makes unwind tables, and logs the first one with its stack.
func (a *Agent) unwindingFailed(err error) {
	if a.services.Resolver.CountFailure(guest.StageUnwind) == 1 {
		a.services.Log.Error("the agent failed to make unwind tables; please report this", "err", err, "stack",
			guest.StackOf(err))
	}
}
