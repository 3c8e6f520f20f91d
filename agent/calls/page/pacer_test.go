package page

import (
	"testing"
	"time"
)

// A guest that sends without end is read at its rate, and not slept for longer than an interval.
func TestPacer(t *testing.T) {
	p := pacer{rate: 1000}
	now := time.Unix(0, 0)
	for range 10_000 {
		now = now.Add(10*time.Microsecond + p.next(now))
	}
	if took := now.Sub(time.Unix(0, 0)); took < 9*time.Second || took > 11*time.Second {
		t.Errorf("10,000 messages at 1000 a second took %v", took)
	}
	var idle pacer
	idle.rate = 1000
	for range 100 {
		if pause := idle.next(now); pause != 0 {
			t.Fatalf("a slow guest waits %v", pause)
		}
		now = now.Add(10 * time.Millisecond)
	}
}
