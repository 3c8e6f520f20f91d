package agent

import "time"

// A backoff spaces attempts, each pause twice as long as the one before, up to maxPause.
type backoff struct {
	first time.Duration // pause
	limit int           // attempts, 0 for no limit

	attempts int
	next     time.Duration // CLOCK_MONOTONIC: not due before
}

const maxPause = 30 * time.Second

// vmStart is when a process that may load a VM is looked at again: a launcher loads libjvm within milliseconds on a
// quiet machine, and within seconds on a busy one. Five seconds in all.
var vmStart = backoff{first: 5 * time.Millisecond, limit: 10}

// again returns the pause before the next attempt; false if there is none.
func (b *backoff) again() (pause time.Duration, ok bool) {
	if b.limit > 0 && b.attempts >= b.limit {
		return 0, false
	}
	pause = min(b.first<<min(b.attempts, 16), maxPause)
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
