// Package fold joins samples with their processes and calling contexts, and holds the contents of
// open windows: the trees of each Thread, an EventSet and a CallSet of each Process. Frames have no
// names here before a window closes.
//
// If not all stacks are walked, a Joiner completes partial walks at once, or learns contexts from
// walks. When a window closes, a Placing finds the contexts of samples that have only a link.
//
// Only a Coverage and an Owner have locks of their own. The rest belongs to a State, which its
// Owner lends to one function at a time.
//
//	o := fold.NewOwner(fold.NewState(options), failed)
//	w := fold.NewWindow(nil)
//	o.Do(func(s *fold.State) { s.Open(w) })
//	o.Do(func(s *fold.State) { s.Take(s.Process(sample.Header), sample) }) // for each sample
//	o.Do(func(s *fold.State) { processes = s.Close(w) })
package fold

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// An Owner has the State of an agent. It lends the State to one function at a time, on the caller's
// goroutine: to the drainer for each record, and to others for what they read or change. A State
// cannot be reached in any other way, so that code with a State needs no rules about locks.
//
// The loan is deliberately not a message to the drainer. The drainer sleeps in ring.Reader.Next,
// which waits for records that are still being written, up to a second when a flush wakes it. A
// request would wait for that, and for two switches of goroutines. With loans, the State is free
// whenever no function runs, also before there is a drainer and after its end.
type Owner struct {
	mu     sync.Mutex   // lends the state; only Try takes it
	holder atomic.Int64 // the goroutine that has the state, if FindNested is set; 0 for none
	state  *State
	failed func(error)
}

// NewOwner returns the owner of a state that nobody else keeps. After each function that panics it
// calls failed, outside the loan.
func NewOwner(s *State, failed func(error)) *Owner { return &Owner{state: s, failed: failed} }

// Do calls f with the state, which must not be kept. A function that has a state must not call Do,
// nor wait for anyone who does. If f panics, its remaining work is not done, and Do reports the
// panic and returns a *proc.PanicError.
func (o *Owner) Do(f func(*State)) error {
	err := o.Try(f)
	if err != nil {
		o.failed(err)
	}
	return err
}

// FindNested makes Do panic if a function that has the state calls it, instead of deadlocking. That
// takes a microsecond a call: tests set it before they make an Owner.
var FindNested bool

// Try is Do for callers that handle a panic of f themselves.
func (o *Owner) Try(f func(*State)) error {
	if FindNested {
		self := goroutine()
		if o.holder.Load() == self {
			panic("fold: a function that has the state asks for it again")
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holder.Store(self)
		defer o.holder.Store(0)
	} else {
		o.mu.Lock()
		defer o.mu.Unlock()
	}
	return proc.Catch(func() error {
		f(o.state)
		return nil
	})
}

// goroutine returns the number of the calling goroutine, from the first line of its stack:
// "goroutine 7 [running]:".
func goroutine() int64 {
	var buf [32]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return n
}

// Get is Do for a function that returns a value: the zero value if f panics.
func Get[T any](o *Owner, f func(*State) T) (result T) {
	o.Do(func(s *State) { result = f(s) })
	return result
}
