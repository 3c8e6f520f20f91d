package wall

import (
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Why it is not known what threads did.
const (
	whyUnsampled = "threads ran too briefly for a sample"
	whyThinned   = "there were too many short waits to record, and their threads were in no known wait when the " +
		"window ended"
	whyUnread  = "the stacks of threads still waiting at the window's end could not be read"
	whyUnnamed = "the code that says what a thread waited for has no name"
)

// Extents returns how much of the time of threads, and of their waits, is known to have gone where
// and why, from the events OffCPU and Wall. How long threads existed, and used a CPU, is the
// scheduler's account; of those that ended in the window it is what was observed of them.
func Extents(events []*profile.Events) (all []profile.Extent) {
	for _, e := range events {
		switch e.Kind {
		case profile.OffCPU:
			all = append(all, waits(e))
		case profile.Wall:
			all = append(all, times(e))
		}
	}
	return all
}

// times returns the extent of wall time. Its rows add up to what there was.
func times(e *profile.Events) profile.Extent {
	x := profile.Extent{Subject: e.Kind.String(), What: profile.ThreadTimes, Unit: "nanoseconds",
		Source: "the scheduler"}
	for i := range e.Rows {
		value := e.Rows[i].Values[e.Kind.Main()]
		x.There += value
		if why := unknown(e, &e.Rows[i]); why != "" && value > 0 {
			x.Miss(value, why)
		} else {
			x.Observed += value
		}
	}
	return x
}

// waits returns the extent of off-CPU time. Waits that were drawn stand for others, so that all of
// them together tell what is known; rows add up to what there was only on average.
func waits(e *profile.Events) profile.Extent {
	x := profile.Extent{Subject: e.Kind.String(), What: profile.ThreadWaits, Unit: "nanoseconds",
		Source: "the scheduler"}
	known := map[int]bool{}
	for _, t := range e.Times {
		known[t.TID] = true
		x.There += float64(max(t.Wall-t.On, 0))
	}
	recorded := 0.0
	for i := range e.Rows {
		row := &e.Rows[i]
		value := row.Values[e.Kind.Main()]
		recorded += value
		if !known[row.TID] && !known[profile.EndedThreads] {
			x.There += value
		}
		if why := unknown(e, row); why != "" && value > 0 {
			x.Miss(value, why)
		} else {
			x.Observed += value
		}
	}
	x.Observed = min(x.Observed, x.There)
	if missing := x.There - max(recorded, x.Observed); missing > 0 {
		x.Miss(missing, "the sampled waits add up to less")
	}
	return x
}

// unknown says why it is not known where or why the time of a row passed; "" if it is.
func unknown(e *profile.Events, row *profile.EventRow) string {
	leaf := ""
	if row.Context != 0 {
		leaf = e.Tree.Node(row.Context).Key.Function()
	}
	switch {
	case row.What == cause.Running && leaf == NotSampled:
		return whyUnsampled
	case row.What != cause.Unknown:
		return ""
	case leaf == NotSampled:
		return whyThinned
	case leaf == profile.StillWaiting:
		return whyUnread
	}
	return whyUnnamed
}
