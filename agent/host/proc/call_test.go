package proc

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestCounted(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		from, to moment
		want     time.Duration // part of 240 ms that counts
	}{
		{"the kernel says nothing", moment{}, moment{}, 240 * ms},
		{"the target does not answer", moment{state: stateBlocked}, moment{state: stateBlocked}, 240 * ms},
		{"nor did it from the start", moment{}, moment{state: stateBlocked, cpu: 5 * ms, waited: 900 * ms}, 240 * ms},
		{"it answers slowly, on a busy machine", moment{state: stateRunning, waited: 100 * ms},
			moment{state: stateBlocked, waited: 220 * ms}, 120 * ms},
		{"a thread that waits a little", moment{state: stateRunning}, moment{state: stateBlocked, waited: 50 * ms},
			240 * ms},
		{"a thread that computes", moment{state: stateRunning, cpu: 100 * ms},
			moment{state: stateRunning, cpu: 340 * ms}, 24 * ms},
		{"a thread that has no CPU", moment{state: stateRunning}, moment{state: stateRunning, cpu: 1 * ms}, 4 * ms},
		{"a lock", moment{state: stateBlocked}, moment{state: stateParked, starved: 10 * ms}, 240 * ms},
		{"a turn among threads that have no CPU", moment{state: stateParked, starved: time.Second},
			moment{state: stateParked, starved: 2 * time.Second}, 4 * ms},
		{"a turn on a busy machine", moment{state: stateParked, starved: time.Second},
			moment{state: stateParked, starved: 1100 * ms}, 140 * ms},
	} {
		if got := counted(c.from, c.to, 240*ms); got != c.want {
			t.Errorf("%s: %v counts, want %v", c.name, got, c.want)
		}
	}
}

// Where the agent gets no CPU, its looks come late. What it saw of a thread then is of one moment,
// not of the time before.
func TestCallClockLate(t *testing.T) {
	const ms = time.Millisecond
	var at moment
	c := callClock{look: func(int) moment { return at }, pause: 12 * ms}
	now := time.Now()
	c.begin(now)
	for _, look := range []struct {
		doing string
		tid   int
		after time.Duration
		at    moment
		want  time.Duration // time that the target took so far
	}{
		{"the first look, late", 7, 600 * ms, moment{state: stateBlocked, waited: 900 * ms}, 12 * ms},
		{"the next, in time", 7, 12 * ms, moment{state: stateBlocked, waited: 900 * ms}, 24 * ms},
		{"a thread that had no CPU", 7, 96 * ms, moment{state: stateBlocked, waited: 990 * ms}, 30 * ms},
		{"another thread", 8, 12 * ms, moment{state: stateBlocked, waited: 5000 * ms}, 42 * ms},
	} {
		now, at = now.Add(look.after), look.at
		if got := c.check(look.tid, now); got != look.want {
			t.Errorf("%s: the target took %v, want %v", look.doing, got, look.want)
		}
	}
}

// A goroutine that had no thread yet has asked no target for anything.
func TestCallNotBegun(t *testing.T) {
	if at := lookAtThread(0); at.state != stateRunning {
		t.Errorf("state %d, want %d", at.state, stateRunning)
	}
}

func TestParseSyscall(t *testing.T) {
	for text, want := range map[string]threadState{
		"running\n":           stateRunning,
		"-1 0x7ffe0 0x7f00\n": stateParked,
		"202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffe0 0x7f00\n":                                             map[bool]threadState{true: stateParked, false: stateBlocked}[unix.SYS_FUTEX == 202],
		fmt.Sprintf("%d 0x4 0x7f00 0x80 0xffffffff 0x0 0x0 0x7ffe0 0x7f00\n", unix.SYS_EPOLL_PWAIT): stateParked,
		"310 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffe0 0x7f00\n":                                             stateBlocked,
	} {
		if got := parseSyscall([]byte(text)); got != want {
			t.Errorf("%q is state %d, want %d", text, got, want)
		}
	}
}

// A call that computes is given time: a target cannot make it do so for ever, and a machine without
// a free CPU can make it last for any time.
func TestPoolWaitsForWhatComputes(t *testing.T) {
	p := NewPool(PoolOptions{Deadline: 40 * time.Millisecond, FirstDeadline: 40 * time.Millisecond})
	err := p.Do(t.Context(), target1, func() error {
		for end := time.Now().Add(3 * p.opt.Deadline); time.Now().Before(end); {
		}
		return nil
	})
	if err != nil {
		t.Errorf("a call that took three deadlines, and let nobody wait: %v", err)
	}
	if s := p.Stats(); s.Quarantined != 0 || s.Calls != 1 {
		t.Errorf("%+v", s)
	}
}

// A call that the target blocks is abandoned.
func TestPoolAbandonsWhatIsBlocked(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	p := NewPool(PoolOptions{Deadline: 40 * time.Millisecond, FirstDeadline: 40 * time.Millisecond})
	err := p.Do(t.Context(), target1, func() error {
		_, err := unix.Read(pipe[0], make([]byte, 1))
		return err
	})
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("a call that waits for ever: %v", err)
	}
	unix.Close(pipe[1]) // it returns
}

func BenchmarkPool(b *testing.B) {
	p := NewPool(PoolOptions{})
	for b.Loop() {
		if err := p.do(b.Context(), target1, general, func(c *call) error { c.here(); return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
