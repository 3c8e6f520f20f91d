package proc

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A PanicError is a panic that Catch has recovered. It is a fault of the agent's, which something in a target has brought
// out.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine, from where it was recovered
}

func (e *PanicError) Error() string { return fmt.Sprintf("the agent panicked: %v", e.Value) }

// Catch calls fn and returns its error. A panic in fn becomes a *PanicError, or the one that fn panicked with. Locks that
// fn took and does not release with defer stay locked.
func Catch(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	return fn()
}

func panicError(v any) *PanicError {
	if e, ok := v.(*PanicError); ok {
		return e
	}
	return &PanicError{v, debug.Stack()}
}

// Repanic panics with the *PanicError in err, if there is one: for a caller that has a Catch of its own around it.
func Repanic(err error) {
	var e *PanicError
	if errors.As(err, &e) {
		panic(e)
	}
}
