package agent

import (
	"slices"
	"testing"
	"time"
)

func TestKeeper(t *testing.T) {
	const grace = 2 * time.Second
	k := keeper[string, string]{grace: grace}
	made := 0
	take := func(key string, p *process) (woken bool) {
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
	a, b := &process{}, &process{}
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
	c := &process{}
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

// Numbers are used again, each by one owner at a time, and those that were given back last come last.
func TestNumbering(t *testing.T) {
	n := numbering{bound: 3}
	take := func() int {
		if number, ok := n.take(); ok {
			return int(number)
		}
		return -1
	}
	for i, want := range []int{0, 1, 2, -1} {
		if got := take(); got != want {
			t.Fatalf("number %d is %d, want %d", i, got, want)
		}
	}
	n.give([]uint32{2})
	n.give([]uint32{0, 1})
	for i, want := range []int{2, 0, 1, -1} {
		if got := take(); got != want {
			t.Errorf("number %d that is used again is %d, want %d", i, got, want)
		}
	}
	for i := range 1000 {
		n.give([]uint32{1, 2})
		if first, second := take(), take(); first != 1 || second != 2 {
			t.Fatalf("round %d: %d and %d", i, first, second)
		}
	}
}
