package target

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/retry"
)

// An attachPace says when a process that has no VM yet is looked at again, or a VM that could not be attached is tried again. No failure is for good: while libjvm is loaded,
// what is read of it may be anything. For startTime after the first attempt the pauses grow to a second, and the agent
// comes back by itself. Later the process is tried again when it is sampled, once in retryInterval.
type attachPace struct {
	pauses   retry.Backoff
	begun    time.Duration // CLOCK_MONOTONIC: of the first attempt, 0 before it
	reported bool          // people know that it cannot be attached yet
}

const (
	startTime     = 30 * time.Second // the longest that a VM takes to start
	retryInterval = time.Minute
	patience      = 10 * time.Second // after which the log says that a VM cannot be attached yet
)

func newAttachPace() attachPace {
	return attachPace{pauses: retry.Backoff{First: 5 * time.Millisecond, Longest: time.Second}}
}

// due tells whether an attempt may be made now.
func (a *attachPace) due(now time.Duration) bool {
	if a.begun == 0 {
		a.begun = now
	}
	return a.pauses.Due(now)
}

// failed puts off the next attempt. While the VM may be starting, starting is true: then somebody must see to it that there is
// one at a.pauses.next.
func (a *attachPace) failed(now time.Duration) (starting bool) {
	if now-a.begun < startTime {
		return true
	}
	a.pauses.Next = now + retryInterval
	return false
}

// report tells, once, that people are to know of a failure: of one that will not pass at once, of others after a while.
func (a *attachPace) report(now time.Duration, passes bool) bool {
	if a.reported || passes && now-a.begun < patience {
		return false
	}
	a.reported = true
	return true
}
