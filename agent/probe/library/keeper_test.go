package library

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// calls are what a keeper did, in order.
type calls struct {
	mu   sync.Mutex
	list []string
}

func (c *calls) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call)
}

func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

func kind(c *calls, attach func(string, *os.File) (string, error)) Kind[string] {
	return Kind[string]{
		Attach:   attach,
		Attached: func(v string) { c.add("attached " + v) },
		Idle: func(v string, idle bool) {
			if idle {
				c.add("idle " + v)
			} else {
				c.add("needed " + v)
			}
		},
		Detach: func(_ context.Context, v string) { c.add("detach " + v) },
	}
}

func null(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func prepare(text string) func(*string) (bool, error) {
	return func(v *string) (bool, error) {
		*v = text
		return true, nil
	}
}

// A file is attached once for all users, and detached when the last of them has been gone for the
// grace period.
func TestKeeper(t *testing.T) {
	var did calls
	k := New[string, int](proc.NewPool(proc.PoolOptions{}), kind(&did, func(v string, f *os.File) (string, error) {
		did.add("attach " + v)
		return v + "!", nil
	}))
	defer k.Close()
	f := null(t)
	expect := func(want ...string) {
		t.Helper()
		if got := did.take(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if known, err := k.Known(1, "x"); known || err != nil {
		t.Errorf("a file that nobody has used is known: %v, %v", known, err)
	}
	for user := range 2 {
		if v, err := k.Use(user, os.Getpid(), "x", f, prepare("lib")); v != "lib!" || err != nil {
			t.Errorf("user %d: %q, %v", user, v, err)
		}
	}
	if known, err := k.Known(2, "x"); !known || err != nil {
		t.Errorf("known: %v, %v", known, err)
	}
	expect("attach lib", "attached lib!")
	k.Leave(0)
	k.Leave(1)
	expect()
	k.Leave(2)
	k.Use(3, os.Getpid(), "x", f, nil)
	k.Leave(3)
	expect("idle lib!", "needed lib!", "idle lib!")
	if _, more := k.Expire(t.Context(), proc.Monotonic()); !more {
		t.Error("nothing more expires, although a file is idle")
	}
	expect()
	if _, more := k.Expire(t.Context(), proc.Monotonic()+Grace); more {
		t.Error("more than one file was idle")
	}
	expect("detach lib!")
}

// Where there is nothing to attach, what was prepared is the answer. An error in preparing is not
// kept.
func TestKeeperNothingToAttach(t *testing.T) {
	k := New[string, int](proc.NewPool(proc.PoolOptions{}), Kind[string]{Attach: func(string, *os.File) (string, error) {
		t.Error("attached")
		return "", nil
	}})
	defer k.Close()
	f, late := null(t), errors.New("too late")
	if _, err := k.Use(1, 1, "x", f, func(*string) (bool, error) { return false, late }); !errors.Is(err, late) {
		t.Errorf("error %v", err)
	}
	for range 2 {
		if v, err := k.Use(1, 1, "x", f, func(v *string) (bool, error) { *v += "read"; return false, nil }); v != "read" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	}
}

// The last failure is every user's, unless another attempt may succeed. A panic is repeated.
func TestKeeperFailure(t *testing.T) {
	final := errors.New("no such probe")
	passing := errors.New("busy")
	attempts := 0
	k := New[string, int](proc.NewPool(proc.PoolOptions{}), Kind[string]{
		Attach: func(v string, _ *os.File) (string, error) {
			attempts++
			switch v {
			case "final":
				return "", final
			case "passing":
				return "", passing
			}
			panic("hostile")
		},
		Final: func(err error) bool { return errors.Is(err, final) },
	})
	defer k.Close()
	f := null(t)
	use := func(key string) error {
		return proc.Catch(func() error {
			_, err := k.Use(1, os.Getpid(), key, f, prepare(key))
			return err
		})
	}
	for _, test := range []struct {
		key      string
		is       func(error) bool
		attempts int
		known    bool
	}{
		{"final", func(err error) bool { return errors.Is(err, final) }, 1, true},
		{"passing", func(err error) bool { return errors.Is(err, passing) }, 2, false},
		{"panic", func(err error) bool { var p *proc.PanicError; return errors.As(err, &p) }, 2, false},
	} {
		attempts = 0
		for range 2 {
			if err := use(test.key); !test.is(err) {
				t.Errorf("%s: error %v", test.key, err)
			}
		}
		known, err := k.Known(2, test.key)
		if attempts != test.attempts || known != test.known || !test.is(err) {
			t.Errorf("%s: %d attempts, known %v, %v", test.key, attempts, known, err)
		}
	}
}

// While an attachment takes long, users wait for it a limited time, do not wait for each other, and
// it is not repeated.
func TestKeeperSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		attempts := 0
		k := New[string, int](proc.NewPool(PoolOptions), Kind[string]{Attach: func(v string, _ *os.File) (string, error) {
			attempts++
			<-release
			return v, nil
		}})
		f := null(t)
		begin := time.Now()
		var users sync.WaitGroup
		for user := range 3 {
			users.Go(func() {
				if _, err := k.Use(user, os.Getpid(), "x", f, prepare("lib")); !errors.Is(err, ErrAttaching) {
					t.Errorf("error %v", err)
				}
			})
		}
		users.Wait()
		if waited := time.Since(begin); waited != Patience {
			t.Errorf("users waited for %v", waited)
		}
		close(release)
		if v, err := k.Use(1, os.Getpid(), "x", f, nil); v != "lib" || err != nil || attempts != 1 {
			t.Errorf("%q, %v after %d attempts", v, err, attempts)
		}
		k.Close()
	})
}

// What is attached too late is detached.
func TestKeeperLate(t *testing.T) {
	var did calls
	release, undone := make(chan struct{}), make(chan struct{})
	kind := kind(&did, func(v string, _ *os.File) (string, error) {
		<-release
		return v, nil
	})
	kind.Detach = func(context.Context, string) { close(undone) }
	k := New[string, int](proc.NewPool(proc.PoolOptions{Workers: 1, MaxStuck: 1, Deadline: time.Millisecond, FirstDeadline: time.Millisecond}), kind)
	defer k.Close()
	if _, err := k.Use(1, os.Getpid(), "x", null(t), prepare("lib")); !errors.Is(err, proc.ErrTimeout) {
		t.Errorf("error %v", err)
	}
	close(release)
	<-undone
	if got := did.take(); got != nil {
		t.Errorf("reported as attached: %q", got)
	}
}
