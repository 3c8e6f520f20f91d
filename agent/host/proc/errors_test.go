package proc

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestCatch(t *testing.T) {
	if err := Catch(func() error { return nil }); err != nil {
		t.Errorf("got %v", err)
	}
	if err := Catch(func() error { return ErrGone }); err != ErrGone {
		t.Errorf("got %v", err)
	}
	err := Catch(func() error {
		var none []int
		_ = none[len(none)]
		return nil
	})
	var e *PanicError
	if !errors.As(err, &e) || !strings.Contains(string(e.Stack), "TestCatch") ||
		!strings.Contains(err.Error(), "out of range") {
		t.Fatalf("got %v", err)
	}
	if again := Catch(func() error { Repanic(err); return nil }); again != err {
		t.Errorf("a panic that goes on became %v", again)
	}
	if err := Catch(func() error { Repanic(ErrGone); return nil }); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestPoolPanic: a call that panics returns an error with its stack, and leaves its worker to
// others.
func TestPoolPanic(t *testing.T) {
	p := NewPool(PoolOptions{Workers: 1})
	for range 3 {
		_, err := Call(context.Background(), p, 1, func() (int, error) { panic("out of range") })
		var e *PanicError
		if !errors.As(err, &e) || e.Value != "out of range" || !strings.Contains(string(e.Stack), "TestPoolPanic") {
			t.Fatalf("got %v", err)
		}
	}
	if n, err := Call(context.Background(), p, 1, func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("after a panic: %d, %v", n, err)
	}
	if s := p.Stats(); s.Stuck != 0 || s.Quarantined != 0 {
		t.Errorf("%+v", s)
	}
}
