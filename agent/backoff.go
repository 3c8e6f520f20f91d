package agent

import "time"

// A backoff spaces attempts, each pause twice as long as the one before, up to the longest.
type backoff struct {
	first   time.Duration // pause
	longest time.Duration // pause, 0 for maxPause
	limit   int           // attempts, 0 for no limit

	attempts int
	next     time.Duration // CLOCK_MONOTONIC: not due before
}

const maxPause = 30 * time.Second

// again returns the pause before the next attempt; false if there is none.
func (b *backoff) again() (pause time.Duration, ok bool) {
	if b.limit > 0 && b.attempts >= b.limit {
		return 0, false
	}
	longest := b.longest
	if longest == 0 {
		longest = maxPause
	}
	pause = min(b.first<<min(b.attempts, 16), longest)
	b.attempts++
	return pause, true
}

// due tells whether an attempt may be made now, and if so puts off the one after it.
func (b *backoff) due(now time.Duration) bool {
	if now < b.next {
		return false
	}
	pause, ok := b.again()
	b.next = now + pause
	return ok
}

// An attachPace says when a process that has no VM yet is looked at again, or a VM that could not be attached is tried again. No failure is for good: while libjvm is loaded,
// what is read of it may be anything. For startTime after the first attempt the pauses grow to a second, and the agent
// comes back by itself. Later the process is tried again when it is sampled, once in retryInterval.
type attachPace struct {
	pauses   backoff
	begun    time.Duration // CLOCK_MONOTONIC: of the first attempt, 0 before it
	reported bool          // people know that it cannot be attached yet
}

const (
	startTime     = 30 * time.Second // the longest that a VM takes to start
	retryInterval = time.Minute
	patience      = 10 * time.Second // after which the log says that a VM cannot be attached yet
)

func newAttachPace() attachPace {
	return attachPace{pauses: backoff{first: 5 * time.Millisecond, longest: time.Second}}
}

// due tells whether an attempt may be made now.
func (a *attachPace) due(now time.Duration) bool {
	if a.begun == 0 {
		a.begun = now
	}
	return a.pauses.due(now)
}

// failed puts off the next attempt. While the VM may be starting, starting is true: then somebody must see to it that there is
// one at a.pauses.next.
func (a *attachPace) failed(now time.Duration) (starting bool) {
	if now-a.begun < startTime {
		return true
	}
	a.pauses.next = now + retryInterval
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
