package retry

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{First: time.Second, Limit: 3}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if got, ok := b.Pause(); got != want || !ok {
			t.Errorf("pause %d: %v %v, want %v", i, got, ok, want)
		}
	}
	if _, ok := b.Pause(); ok {
		t.Error("a fourth attempt of three")
	}
}

func TestBackoffDue(t *testing.T) {
	b := Backoff{First: time.Second}
	for _, c := range []struct {
		at   time.Duration
		want bool
	}{{0, true}, {time.Second / 2, false}, {time.Second, true}, {2 * time.Second, false}, {3 * time.Second, true}} {
		if got := b.Due(c.at); got != c.want {
			t.Errorf("due at %v: %v", c.at, got)
		}
	}
	b.Attempts = 1000
	if pause, ok := b.Pause(); pause != maxPause || !ok {
		t.Errorf("pause %v %v after many attempts, want %v", pause, ok, maxPause)
	}
}
