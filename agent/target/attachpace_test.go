package target

import (
	"testing"
	"time"
)

// TestAttachPace: a VM is tried often while it may be starting, and once a minute after that, for ever.
func TestAttachPace(t *testing.T) {
	pace := newAttachPace()
	now, last := time.Second, time.Duration(0)
	attempts := 0
	for {
		if !pace.due(now) {
			t.Fatalf("not due at %v", now)
		}
		attempts++
		if !pace.failed(now) {
			break
		}
		if pause := pace.pauses.Next - now; pause < last || pause > time.Second {
			t.Fatalf("pause of %v after one of %v", pause, last)
		} else {
			last = pause
		}
		now = pace.pauses.Next
	}
	if begun := now - time.Second; begun < startTime || begun > startTime+time.Second || attempts > 50 {
		t.Errorf("%d attempts in %v", attempts, begun)
	}
	for range 100 {
		if next := now + retryInterval; pace.due(next-1) || !pace.due(next) || pace.failed(next) {
			t.Fatalf("tried at another time than %v later", retryInterval)
		} else {
			now = next
		}
	}
}

func TestAttachPaceReport(t *testing.T) {
	pace := newAttachPace()
	pace.due(time.Second)
	for _, c := range []struct {
		at           time.Duration
		passes, want bool
	}{
		{2 * time.Second, true, false},
		{time.Second + patience, true, true},
		{time.Second + 2*patience, true, false}, // already logged
	} {
		if got := pace.report(c.at, c.passes); got != c.want {
			t.Errorf("after %v: %v", c.at, got)
		}
	}
	pace = newAttachPace()
	pace.due(time.Second)
	if !pace.report(time.Second, false) {
		t.Error("what will not pass is not told at once")
	}
}
