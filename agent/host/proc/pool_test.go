package proc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Time in these tests is synctest's: it stands still while anything runs.

const target1, target2 = 101, 102

// hangs returns a call that blocks until release is called.
func hangs() (fn func() error, release func()) {
	c := make(chan struct{})
	return func() error { <-c; return nil }, sync.OnceFunc(func() { close(c) })
}

func works() error { return nil }

func TestPoolReturnsTheCallsError(t *testing.T) {
	p := timedPool(PoolOptions{})
	want := errors.New("this one")
	if err := p.Do(t.Context(), target1, func() error { return want }); err != want {
		t.Errorf("Do = %v, want %v", err, want)
	}
	v, err := Call(t.Context(), p, target1, func() (int, error) { return 23, nil })
	if v != 23 || err != nil {
		t.Errorf("Call = %v, %v", v, err)
	}
	v, err = Call(t.Context(), p, target1, func() (int, error) { return 23, want })
	if v != 0 || err != want {
		t.Errorf("failing Call = %v, %v", v, err)
	}
	if got, want := p.Stats(), (PoolStats{Calls: 3}); got != want {
		t.Errorf("Stats = %+v, want %+v", got, want)
	}
}

func TestPoolAbandonsACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Workers: 1, Backoff: 10 * time.Second, MaxBackoff: 15 * time.Second,
			FirstDeadline: 2 * time.Second})
		fn, release := hangs()
		start := time.Now()
		if err := p.Do(t.Context(), target1, fn); !errors.Is(err, ErrTimeout) {
			t.Fatalf("Do = %v, want %v", err, ErrTimeout)
		}
		if got := time.Since(start); got != 2*time.Second {
			t.Errorf("abandoned after %v, want the default deadline", got)
		}
		// Its only worker was replaced, and only the target that hung is refused.
		if err := p.Do(t.Context(), target2, works); err != nil {
			t.Errorf("other target: %v", err)
		}
		expect := func(when string, want error) {
			t.Helper()
			if err := p.Do(t.Context(), target1, works); !errors.Is(err, want) {
				t.Errorf("%s: Do = %v, want %v", when, err, want)
			}
		}
		expect("at once", ErrQuarantined)
		time.Sleep(time.Minute)
		expect("while the call still hangs", ErrQuarantined)
		release()
		synctest.Wait()
		expect("after it returned", nil)
		want := PoolStats{Calls: 2, Abandoned: 1, Refused: 2}
		if got := p.Stats(); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
	})
}

func TestPoolDoublesTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Backoff: 10 * time.Second, MaxBackoff: 25 * time.Second,
			FirstDeadline: 2 * time.Second})
		for _, quarantine := range []time.Duration{10, 20, 25, 25} {
			fn, release := hangs()
			if err := p.Do(t.Context(), target1, fn); !errors.Is(err, ErrTimeout) {
				t.Fatalf("Do = %v, want %v", err, ErrTimeout)
			}
			release()
			time.Sleep(quarantine*time.Second - 1)
			if got := p.Stats().Quarantined; got != 1 {
				t.Errorf("%v: released early", quarantine)
			}
			time.Sleep(time.Nanosecond)
			if got := p.Stats().Quarantined; got != 0 {
				t.Errorf("%v: released late", quarantine)
			}
		}
		// Good behaviour for long enough is rewarded, and leaves nothing behind.
		time.Sleep(time.Hour)
		fn, release := hangs()
		defer release()
		p.Do(t.Context(), target2, fn)
		if len(p.targets) != 1 {
			t.Errorf("%d targets are remembered, want 1", len(p.targets))
		}
	})
}

func TestPoolIsExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Workers: 2, MaxStuck: 3, FirstDeadline: 2 * time.Second})
		fn, release := hangs()
		for pid := range 3 {
			if err := p.Do(t.Context(), pid, fn); !errors.Is(err, ErrTimeout) {
				t.Fatalf("Do = %v, want %v", err, ErrTimeout)
			}
		}
		if err := p.Do(t.Context(), target1, works); !errors.Is(err, ErrExhausted) {
			t.Errorf("Do = %v, want %v", err, ErrExhausted)
		}
		release()
		synctest.Wait()
		if err := p.Do(t.Context(), target1, works); err != nil {
			t.Errorf("after the targets answered: %v", err)
		}
		want := PoolStats{Calls: 1, Abandoned: 3, Exhausted: 1, Quarantined: 3}
		if got := p.Stats(); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
		p.Forget(0)
		if got := p.Stats().Quarantined; got != 2 {
			t.Errorf("%d quarantined after Forget, want 2", got)
		}
	})
}

// TestPoolWaits fills the workers with one target's calls. Those of it that wait behind are refused
// when the first ones hang, without costing another deadline.
func TestPoolWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Workers: 2, Deadline: time.Second, FirstDeadline: time.Second})
		fn, release := hangs()
		start := time.Now()
		errs := make(chan error, 10)
		for range cap(errs) {
			go func() { errs <- p.Do(t.Context(), target1, fn) }()
		}
		synctest.Wait()
		if err := p.Do(t.Context(), target2, works); err != nil {
			t.Errorf("other target: %v", err)
		}
		counts := map[error]int{}
		for range cap(errs) {
			err := <-errs
			for _, kind := range []error{ErrTimeout, ErrQuarantined} {
				if errors.Is(err, kind) {
					counts[kind]++
				}
			}
		}
		if counts[ErrTimeout] != 2 || counts[ErrQuarantined] != 8 {
			t.Errorf("%v, want 2 timeouts and 8 refusals", counts)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("took %v, want one deadline", got)
		}
		release()
		synctest.Wait()
	})
}

func TestPoolHonoursTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Workers: 1, FirstDeadline: 2 * time.Second})
		fn, release := hangs()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waiting := make(chan error)
		go func() {
			time.Sleep(time.Millisecond) // behind the one below
			waiting <- p.Do(ctx, target2, works)
		}()
		if err := p.Do(ctx, target1, fn); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("running: Do = %v, want %v", err, context.DeadlineExceeded)
		}
		// The worker is free at the same moment that the context ends: either may win.
		if err := <-waiting; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting: Do = %v, want %v", err, context.DeadlineExceeded)
		}
		s := p.Stats()
		if s.Canceled < 1 || s.Stuck != 1 || s.Quarantined != 0 {
			t.Errorf("Stats = %+v, want one stuck and nobody to blame", s)
		}
		release()
		synctest.Wait()
	})
}

// owners returns an Owner for pids: those below 1000 have one user and cgroup, each following
// thousand another user.
func owners(pid int) Owner { return Owner{UID: uint32(pid / 1000), Cgroup: "/"} }

// TestPoolFirstCall: an unknown process has little time at first. If it answers late it has more
// from then on, and if it does not it is left alone.
func TestPoolFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Owner: owners})
		takes := func(d time.Duration) func() error { return func() error { time.Sleep(d); return nil } }
		expect := func(what string, pid int, d time.Duration, want error, after time.Duration) {
			t.Helper()
			start := time.Now()
			if err := p.Do(t.Context(), pid, takes(d)); !errors.Is(err, want) || time.Since(start) != after {
				t.Errorf("%s: %v after %v, want %v after %v", what, err, time.Since(start), want, after)
			}
		}
		const second, ms = time.Second, time.Millisecond
		expect("slow at first", target1, second, ErrTimeout, 100*ms)
		expect("while that call is outstanding", target1, 0, ErrQuarantined, 0)
		time.Sleep(second)
		expect("it answered late", target1, second, nil, second)
		expect("quick at first", target2, 50*ms, nil, 50*ms)
		expect("then slow", target2, second, nil, second)
		expect("hangs", target2, 3*second, ErrTimeout, 2*second)
		time.Sleep(2 * second)
		expect("quarantined", target2, 0, ErrQuarantined, 0)

		expect("slower than any deadline", 103, 5*second, ErrTimeout, 100*ms)
		time.Sleep(5 * second)
		expect("which was found out when it returned", 103, 0, ErrQuarantined, 0)
	})
}

// TestPoolAttack: 64 processes of a user that hang, first and known ones, cost the processes of
// others nothing, and those of his own that answered before little.
func TestPoolAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Owner: owners})
		const innocent, neighbour, attackers = 5000, 99, 64
		for _, known := range []int{neighbour, 101, 102, 103} {
			if err := p.Do(t.Context(), known, works); err != nil {
				t.Fatal(err)
			}
		}
		fn, release := hangs()
		start := time.Now()
		done := make(chan error, attackers)
		for i := range attackers {
			go func() { done <- p.Do(t.Context(), 101+i, fn) }()
		}
		synctest.Wait() // workers of both kinds are taken
		for first := true; ; first = false {
			err := p.Do(t.Context(), innocent, works)
			if err != nil {
				t.Errorf("an innocent process: %v", err)
			}
			if first && time.Since(start) > 2*100*time.Millisecond {
				t.Errorf("an innocent process waited for %v", time.Since(start))
			}
			if len(done) == attackers {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		crowded := 0
		for range attackers {
			if errors.Is(<-done, ErrCrowded) {
				crowded++
			}
		}
		s := p.Stats()
		const most = 3 + 4 + 4 // known ones, the budget, and those that ran when it was used up
		if s.Stuck > most || crowded != attackers-s.Stuck || s.Crowded != uint64(crowded) {
			t.Errorf("%d are refused, %+v", crowded, s)
		}
		if err := p.Do(t.Context(), neighbour, works); err != nil {
			t.Errorf("a process of the same owner that answered before: %v", err)
		}
		if err := p.do(t.Context(), 98, present, func(*call) error { return nil }); err != nil {
			t.Errorf("a process of the same owner whose pages are there: %v", err)
		}
		if err := p.do(t.Context(), 98, absent, func(*call) error { return nil }); err != nil {
			t.Errorf("a process of the same owner, and none of its reads of memory hangs: %v", err)
		}
		if err := p.Do(t.Context(), 97, works); !errors.Is(err, ErrCrowded) {
			t.Errorf("a new process of the same owner: %v, want %v", err, ErrCrowded)
		}
		release()
		synctest.Wait()
		if err := p.Do(t.Context(), 97, works); err != nil {
			t.Errorf("after all returned: %v", err)
		}
		if len(p.stuck.owners)+len(p.stuck.users) != 0 {
			t.Errorf("%v are counted, and none is stuck", p.stuck)
		}
	})
}

// TestPoolOwnerGone: calls of processes that have ended go on hanging, at the cost of whose
// processes they were.
func TestPoolOwnerGone(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var ended atomic.Bool
			p := timedPool(PoolOptions{Owner: func(pid int) Owner {
				if pid != 1 && ended.Load() {
					return gone
				}
				return Owner{UID: uint32(min(pid, 1000)), Cgroup: "/"}
			}})
			fn, release := hangs()
			const attackers = 4 // MaxOwnerStuck
			for i := range attackers {
				ended.Store(false)
				pid := 2000 + i
				if known {
					if err := p.Do(t.Context(), pid, works); err != nil {
						t.Fatal(err)
					}
				}
				result := make(chan error)
				go func() { result <- p.Do(t.Context(), pid, fn) }()
				synctest.Wait() // it hangs
				ended.Store(true)
				if err := <-result; !errors.Is(err, ErrTimeout) {
					t.Fatal(err)
				}
			}
			if got := p.stuck.count(Owner{UID: 1000, Cgroup: "/"}, general); got != attackers {
				t.Errorf("%d calls of the owner are stuck, want %d", got, attackers)
			}
			ended.Store(false)
			if err := p.Do(t.Context(), 3000, works); !errors.Is(err, ErrCrowded) {
				t.Errorf("another process of the owner: %v, want %v", err, ErrCrowded)
			}
			if err := p.Do(t.Context(), 1, works); err != nil {
				t.Errorf("a process of another user: %v", err)
			}
			release()
			synctest.Wait()
		})
	}
}

// TestPoolManyUsers: all users together cannot take what is kept for processes that answered
// before.
func TestPoolManyUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Owner: owners})
		const known = 99
		if err := p.Do(t.Context(), known, works); err != nil {
			t.Fatal(err)
		}
		fn, release := hangs()
		for user := range 20 {
			for i := range 4 {
				p.Do(t.Context(), 1000*(user+1)+i, fn)
			}
		}
		if s := p.Stats(); s.Stuck != 32 || s.Exhausted != 48 {
			t.Errorf("Stats = %+v, want 32 stuck and 48 refused", s)
		}
		if err := p.Do(t.Context(), known, works); err != nil {
			t.Errorf("a process that answered before: %v", err)
		}
		release()
		synctest.Wait()
	})
}

// TestPoolForgets: what is remembered of processes is bounded.
func TestPoolForgets(t *testing.T) {
	p := timedPool(PoolOptions{Owner: owners})
	for pid := range 3 * maxTargets {
		if err := p.Do(t.Context(), pid, works); err != nil {
			t.Fatal(err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.targets); n > maxTargets {
		t.Errorf("%d targets are remembered, want %d at most", n, maxTargets)
	}
}

// timedPool returns a pool that counts all time, for tests whose time is synctest's.
func timedPool(o PoolOptions) *Pool {
	p := NewPool(o)
	p.look = func(int) moment { return moment{} }
	return p
}
