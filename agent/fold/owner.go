package fold

import (
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// An Owner has the State of an agent. It lends it to one function at a time, on the goroutine of the caller: to the drainer for each
// record, to all others for what they need to know or change. A State cannot be reached in any other way, so that code which takes one
// needs no rule about locks.
//
// The loan is not a message to the drainer on purpose. The drainer sleeps in ring.Reader.Next, which waits for records that are still
// being written, up to a second when a flush wakes it; who asks would wait for that, and for two switches of goroutines. Lent, the State is
// free whenever no function runs, also before there is a drainer and after its end.
type Owner struct {
	mu     sync.Mutex // lends the state; only Try takes it
	state  *State
	failed func(error)
}

// NewOwner is the owner of a state that nobody else keeps. After each function that panics it calls failed, outside the loan.
func NewOwner(s *State, failed func(error)) *Owner { return &Owner{state: s, failed: failed} }

// Do calls f with the state, which must not be kept. A function that has a state must not call Do, nor wait for anyone who does. If f
// panics, what it did not do is left undone, and Do reports that and returns a *proc.PanicError.
func (o *Owner) Do(f func(*State)) error {
	err := o.Try(f)
	if err != nil {
		o.failed(err)
	}
	return err
}

// Try is Do for those who account for a panic of f themselves.
func (o *Owner) Try(f func(*State)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return proc.Catch(func() error {
		f(o.state)
		return nil
	})
}

// Get is Do for a function that returns something: the zero value if f panics.
func Get[T any](o *Owner, f func(*State) T) (result T) {
	o.Do(func(s *State) { result = f(s) })
	return result
}
