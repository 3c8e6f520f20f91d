package library

import (
	"slices"
	"testing"
	"time"
)

func TestShelf(t *testing.T) {
	const grace = 2 * time.Second
	k := shelf[string, *int, string]{grace: grace}
	made := 0
	take := func(key string, p *int) (woken bool) {
		t.Helper()
		value, woken := k.take(key, p, func() string { made++; return "of " + key })
		if value != "of "+key {
			t.Errorf("%s: took %q", key, value)
		}
		return woken
	}
	expired := func(now time.Duration, want ...string) (next time.Duration) {
		t.Helper()
		got, next, ok := k.expire(now)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("at %v: %q expired, want %q", now, got, want)
		}
		if !ok {
			return -1
		}
		return next
	}
	a, b := new(int), new(int)
	if !take("x", a) || take("x", a) || take("x", b) || !take("y", b) {
		t.Error("nobody needed x and y before the first of their users")
	}
	if made != 2 {
		t.Errorf("%d things were made of 2", made)
	}
	if idle := k.leave(a, time.Second); idle != nil {
		t.Errorf("%q are idle: b still needs them", idle)
	}
	if next := expired(time.Hour); next != -1 {
		t.Errorf("nothing is idle, and is to be looked at again at %v", next)
	}
	idle := k.leave(b, 10*time.Second)
	if slices.Sort(idle); !slices.Equal(idle, []string{"of x", "of y"}) {
		t.Errorf("%q are idle after their last user", idle)
	}
	if idle := k.leave(b, 11*time.Second); idle != nil {
		t.Errorf("%q became idle twice", idle)
	}
	// Within the grace a new process finds what was made for the one before.
	if next := expired(11 * time.Second); next != 12*time.Second {
		t.Errorf("to be looked at again at %v", next)
	}
	c := new(int)
	if !take("x", c) || made != 2 {
		t.Errorf("%d things were made of 2", made)
	}
	expired(12*time.Second, "of y")
	expired(time.Hour)
	k.leave(c, time.Hour)
	expired(time.Hour+grace, "of x")
	if take("x", a); made != 3 {
		t.Error("what expired was not made anew")
	}
	if len(k.kept) != 1 || len(k.needs) != 1 {
		t.Errorf("%d things of %d processes are kept, want one", len(k.kept), len(k.needs))
	}
}
