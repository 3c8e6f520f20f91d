package httpd

import (
	"maps"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// plus adds up the accounts of two windows.
func plus(a, b profile.Counts) profile.Counts {
	return profile.Counts{
		Attempted: a.Attempted + b.Attempted,
		Delivered: a.Delivered + b.Delivered,
		Dropped:   plusEach(a.Dropped, b.Dropped),
		Folded:    a.Folded + b.Folded,
		Discarded: plusEach(a.Discarded, b.Discarded),
		Idle:      a.Idle + b.Idle,
		Filtered:  a.Filtered + b.Filtered,
		Truncated: plusEach(a.Truncated, b.Truncated),
		Stale:     a.Stale + b.Stale,
		Unknown:   a.Unknown + b.Unknown,
	}
}

// plusEvents adds up the accounts of the events of two windows.
func plusEvents(a, b profile.EventCounts) profile.EventCounts {
	return profile.EventCounts{
		Attempted: a.Attempted + b.Attempted,
		Delivered: a.Delivered + b.Delivered,
		Dropped:   plusEach(a.Dropped, b.Dropped),
		Folded:    a.Folded + b.Folded,
		Discarded: plusEach(a.Discarded, b.Discarded),
		Hits:      a.Hits + b.Hits,
		Cost:      a.Cost + b.Cost,
	}
}

func plusEach(a, b map[string]uint64) map[string]uint64 {
	sum := make(map[string]uint64, len(a))
	maps.Copy(sum, a)
	for cause, n := range b {
		sum[cause] += n
	}
	return sum
}
