// Package retry spaces attempts at what failed.
package retry

import "time"

// A Backoff spaces attempts, each pause twice as long as the one before, up to the longest.
type Backoff struct {
	First   time.Duration // pause
	Longest time.Duration // pause, 0 for 30 s
	Limit   int           // attempts, 0 for no limit

	Attempts int           // made so far
	Next     time.Duration // CLOCK_MONOTONIC: not due before
}

const maxPause = 30 * time.Second

// Pause counts an attempt and returns the pause before it; false if there are no more attempts.
func (b *Backoff) Pause() (pause time.Duration, ok bool) {
	if b.Limit > 0 && b.Attempts >= b.Limit {
		return 0, false
	}
	longest := b.Longest
	if longest == 0 {
		longest = maxPause
	}
	pause = min(b.First<<min(b.Attempts, 16), longest)
	b.Attempts++
	return pause, true
}

// Due reports whether an attempt may be made at that time of CLOCK_MONOTONIC. If so, it puts off
// the one after it.
func (b *Backoff) Due(now time.Duration) bool {
	if now < b.Next {
		return false
	}
	pause, ok := b.Pause()
	b.Next = now + pause
	return ok
}
