// Package library keeps what the agent attaches to files that processes map, such as the probes of
// a VM's library: once for each file, for all processes that map it.
//
// Attaching takes the kernel some 100 ms for a library, and much longer on a busy machine. So it
// happens in the background, and users wait for it a limited time. What no process uses any more is
// detached after a grace period: a service that is restarted over and over does not pay for the
// attachment every time, and a container's file system can be unmounted soon after its last
// process.
package library

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// Grace is how long a file that no process uses stays attached.
const Grace = 2 * time.Second

// Patience is how long Use waits for an attachment. It is as long as a worker waits for a read of a
// target.
const Patience = 2 * time.Second

// ErrAttaching says that an attachment takes longer than Patience: try again later.
var ErrAttaching = errors.New("the agent is still attaching its probes")

// PoolOptions bound attaching, which also makes the kernel read pages of the file. The file may be
// in a file system that the target controls, so one file of each owner may hang.
var PoolOptions = proc.PoolOptions{Workers: 1, MaxStuck: 16, MaxOwnerStuck: 1, Deadline: time.Minute,
	FirstDeadline: time.Minute}

// A Kind says what a Keeper does with files. All functions but Attach may be nil.
type Kind[V any] struct {
	// Attach attaches to a file, given what prepare left, and returns what is to be kept. It runs
	// in the pool; if it is too late, what it returns goes to Detach. After an error it has undone
	// what it did.
	Attach func(prepared V, f *os.File) (V, error)
	// Attached is called after Attach was in time, before anybody gets the value.
	Attached func(V)
	// Idle is called with true when the last user leaves, and with false when a new one comes after
	// that.
	Idle func(v V, idle bool)
	// Detach undoes Attach.
	Detach func(ctx context.Context, v V)
	// Final reports whether there is no point in another attempt after this error. Nil: another
	// attempt is always made.
	Final func(error) bool
}

// A Keeper keeps a V for each file, by key, and knows which users it has. Its methods may be called
// from any goroutine.
type Keeper[K, U comparable, V any] struct {
	kind  Kind[V]
	pool  *proc.Pool
	left  chan struct{}   // holds one: a file has no users any more
	alive context.Context // alive until Close
	end   context.CancelFunc
	work  sync.WaitGroup

	mu   sync.Mutex
	kept shelf[K, U, *file[V]]
}

// A file is what is kept of one.
type file[V any] struct {
	mu       sync.Mutex    // held while the file is prepared, not while it is attached to
	prepared bool          // value holds what prepare left
	ended    chan struct{} // closed when the attempt to attach has ended; nil without one
	settled  bool          // there will be no other attempt
	failure  error         // error of the last attempt
	value    V             // also guarded by Keeper.mu when it changes

	attached bool // guarded by Keeper.mu, or nobody uses the file
}

// New makes a keeper whose attachments run in that pool.
func New[K, U comparable, V any](pool *proc.Pool, kind Kind[V]) *Keeper[K, U, V] {
	ctx, end := context.WithCancel(context.Background())
	k := &Keeper[K, U, V]{kind: kind, pool: pool, left: make(chan struct{}, 1), alive: ctx, end: end}
	k.kept.grace = Grace
	k.work.Go(func() { k.expire(ctx) })
	return k
}

// Use returns what is attached to the file with that key, which user maps from now on, until it
// leaves. The first call prepares the file and starts to attach; f needs to stay open during the
// call only. The owner is the process that is to blame if attaching hangs.
//
// Prepare, which may be nil, reads what it needs of the file. It reports whether there is anything
// to attach; after an error the next call tries again.
//
// The error is ErrAttaching while the attachment is under way, or that of the last attempt. A panic
// during the attempt is repeated here.
func (k *Keeper[K, U, V]) Use(
	user U, owner int, key K, f *os.File, prepare func(*V) (attach bool, err error),
) (V, error) {
	e := k.hold(user, key)
	ended, err := k.settle(e, owner, f, prepare)
	if err == nil && !k.await(ended) {
		err = ErrAttaching
	}
	if err != nil {
		var none V
		return none, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	proc.Repanic(e.failure)
	return e.value, e.failure
}

// Known reports whether it is already known what comes of a file, and the error if it is one. If
// the file is kept, user maps it from now on.
func (k *Keeper[K, U, V]) Known(user U, key K) (known bool, err error) {
	k.mu.Lock()
	kept := k.kept.has(key)
	k.mu.Unlock()
	if !kept {
		return false, nil
	}
	e := k.hold(user, key)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settled, e.failure
}

// hold returns the file with that key, attached or not, which user maps.
func (k *Keeper[K, U, V]) hold(user U, key K) *file[V] {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, woken := k.kept.take(key, user, func() *file[V] { return &file[V]{} })
	if woken && e.attached {
		k.idle(e, false)
	}
	return e
}

func (k *Keeper[K, U, V]) idle(e *file[V], idle bool) {
	if k.kind.Idle != nil {
		k.kind.Idle(e.value, idle)
	}
}

// settle prepares a file and starts to attach to it, unless that was done or is under way. It
// returns a channel that is closed when that has ended.
func (k *Keeper[K, U, V]) settle(
	e *file[V], owner int, f *os.File, prepare func(*V) (bool, error),
) (ended <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.settled:
		return nothing, nil
	case e.ended != nil:
		return e.ended, nil
	}
	if !e.prepared && prepare != nil {
		attach, err := prepare(&e.value)
		if err != nil {
			return nil, err
		}
		if !attach {
			e.settled = true
			return nothing, nil
		}
	}
	e.prepared = true
	e.ended, err = k.background(f, func(f *os.File) {
		err := proc.Catch(func() error { return k.attach(e, owner, f) })
		e.mu.Lock()
		defer e.mu.Unlock()
		e.failure = err
		e.settled = err == nil || k.kind.Final != nil && k.kind.Final(err)
		if !e.settled {
			e.ended = nil // the next user tries again
		}
	})
	return e.ended, err
}

func (k *Keeper[K, U, V]) attach(e *file[V], owner int, f *os.File) error {
	prepared := e.value // what begins too late must not read it
	value, err := inTime(k.alive, k.pool, owner, func() (V, error) { return k.kind.Attach(prepared, f) },
		func(late V) { k.detach(context.Background(), late) })
	if err != nil {
		return err
	}
	if k.kind.Attached != nil {
		k.kind.Attached(value)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e.value, e.attached = value, true
	return nil
}

func (k *Keeper[K, U, V]) detach(ctx context.Context, v V) {
	if k.kind.Detach != nil {
		k.kind.Detach(ctx, v)
	}
}

// nothing is what to wait for if there is nothing to attach.
var nothing = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// background runs attach with a file descriptor of its own, in a goroutine that Close waits for.
func (k *Keeper[K, U, V]) background(f *os.File, attach func(*os.File)) (ended chan struct{}, err error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep library open: %w", err)
	}
	own := os.NewFile(uintptr(fd), f.Name())
	ended = make(chan struct{})
	k.work.Go(func() {
		defer close(ended)
		defer own.Close()
		attach(own)
	})
	return ended, nil
}

// await waits for what goes on in the background, and reports whether it has ended.
func (k *Keeper[K, U, V]) await(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
	}
	patience := time.NewTimer(Patience)
	defer patience.Stop()
	select {
	case <-ended:
		return true
	case <-k.alive.Done():
	case <-patience.C:
	}
	return false
}

// inTime runs fn in a pool until ctx ends. What fn returns too late is undone.
func inTime[T any](ctx context.Context, pool *proc.Pool, owner int, fn func() (T, error), undo func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	err := pool.Do(ctx, owner, func() error {
		defer close(done)
		value, err := fn()
		done <- outcome{value, err}
		return err
	})
	if err == nil {
		return (<-done).value, nil
	}
	if errors.Is(err, proc.ErrTimeout) || ctx.Err() != nil {
		go func() {
			if late, ok := <-done; ok && late.err == nil {
				undo(late.value)
			}
		}()
	}
	var none T
	return none, err
}

// Leave notes that a user is gone. Files that nobody else uses are detached after Grace.
func (k *Keeper[K, U, V]) Leave(user U) {
	k.mu.Lock()
	defer k.mu.Unlock()
	idle := k.kept.leave(user, proc.Monotonic())
	for _, e := range idle {
		if e.attached {
			k.idle(e, true)
		}
	}
	if len(idle) > 0 {
		select {
		case k.left <- struct{}{}:
		default:
		}
	}
}

// expire detaches files that nobody has used for Grace, until ctx ends.
func (k *Keeper[K, U, V]) expire(ctx context.Context) {
	for {
		next, more := k.Expire(ctx, proc.Monotonic())
		var due <-chan time.Time
		if more {
			due = time.After(next - proc.Monotonic())
		}
		select {
		case <-ctx.Done():
			return
		case <-k.left:
		case <-due:
		}
	}
}

// Expire detaches what nobody has used for Grace at that time of CLOCK_MONOTONIC. The keeper calls
// it by itself; it returns when the next call is due, more is false if there is nothing to wait
// for.
func (k *Keeper[K, U, V]) Expire(ctx context.Context, now time.Duration) (next time.Duration, more bool) {
	k.mu.Lock()
	expired, next, more := k.kept.expire(now)
	k.mu.Unlock()
	for _, e := range expired { // their users have left: nobody else has them
		e.mu.Lock()
		ended := e.ended
		e.mu.Unlock()
		k.after(ended, func() {
			if e.attached {
				k.detach(ctx, e.value)
			}
		})
	}
	return next, more
}

// after calls f once an attempt to attach has ended, without holding up others.
func (k *Keeper[K, U, V]) after(ended <-chan struct{}, f func()) {
	if ended == nil {
		f()
		return
	}
	select {
	case <-ended:
		f()
		return
	default:
	}
	k.work.Go(func() {
		<-ended
		f()
	})
}

// Close ends attempts to attach, and waits for them. It detaches nothing.
func (k *Keeper[K, U, V]) Close() {
	k.end()
	k.work.Wait()
}
