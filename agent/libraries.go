package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// libraryGrace is how long a library keeps its probes after its last process has ended. To attach them takes some 100 ms,
// which a service that is restarted all the time shall not cost every time; but a container's file system cannot be
// unmounted before.
const libraryGrace = 2 * time.Second

// Bounds on attaching, which goes on outside of the pool for reads: to attach to one library takes the kernel some 100 ms,
// and much longer on a busy machine. The kernel also reads pages of the file, which may be in a file system of the target's
// making: of each owner one library may hang.
var attaching = proc.PoolOptions{Workers: 1, MaxStuck: 16, MaxOwnerStuck: 1, Deadline: time.Minute, FirstDeadline: time.Minute}

// attachWait is how long a naming worker waits for probes to be attached before it goes on with other processes. It is as long
// as it waits for reads of a target.
const attachWait = 2 * time.Second

// closed is what waits for an attempt that is not needed.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// background runs attach with a descriptor of its own, in a goroutine that close waits for.
func (gs *guests) background(file *os.File, attach func(*os.File)) (ended chan struct{}, err error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("keep library open: %w", err)
	}
	own := os.NewFile(uintptr(fd), file.Name())
	ended = make(chan struct{})
	gs.ended.Go(func() {
		defer close(ended)
		defer own.Close()
		attach(own)
	})
	return ended, nil
}

// await waits for what goes on in the background, and reports whether it has ended.
func (gs *guests) await(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
	}
	patience := time.NewTimer(attachWait)
	defer patience.Stop()
	select {
	case <-ended:
		return true
	case <-gs.alive.Done():
	case <-patience.C:
	}
	return false
}

// hold returns the image of the library with that key, read or not, which p maps.
func (gs *guests) hold(p *process, key symbolize.FileKey) *image {
	gs.keeping.Lock()
	defer gs.keeping.Unlock()
	im, woken := gs.images.take(key, p, func() *image { return &image{} })
	if woken {
		gs.setIdle(im.attached.plans, false)
	}
	return im
}

// watched reports whether it is known what comes of a spec of values in a file, which is so for p from now on: it is attached for
// other processes, or cannot be, for that reason.
func (gs *guests) watched(p *process, key watchedKey) (known bool, why error) {
	gs.keeping.Lock()
	_, kept := gs.values.kept[key]
	if !kept {
		gs.keeping.Unlock()
		return false, nil
	}
	w := gs.holdWatched(p, key)
	gs.keeping.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settled, w.failure
}

// holdWatched returns the file of that key, attached or not, which p maps; keeping is held.
func (gs *guests) holdWatched(p *process, key watchedKey) *watchedFile {
	w, woken := gs.values.take(key, p, func() *watchedFile { return &watchedFile{} })
	if woken && w.plan != nil {
		gs.setIdle([]*attachedPlan{w.plan}, false)
	}
	return w
}

// watch attaches a spec of values to a file that p maps. The error is errAttaching while that goes on.
func (gs *guests) watch(p *process, key watchedKey, f *os.File, found valuePlan) error {
	gs.keeping.Lock()
	w := gs.holdWatched(p, key)
	gs.keeping.Unlock()
	ended, err := gs.settleWatched(p, key, w, f, found)
	if err != nil {
		return err
	}
	if !gs.await(ended) {
		return errAttaching
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	proc.Repanic(w.failure)
	return w.failure
}

// settleWatched begins to attach a spec, unless that was done, or is under way. It returns what is closed when that has ended.
func (gs *guests) settleWatched(p *process, key watchedKey, w *watchedFile, f *os.File, found valuePlan) (ended <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended != nil {
		return w.ended, nil
	}
	w.ended, err = gs.background(f, func(f *os.File) {
		err := proc.Catch(func() error { return gs.attachWatched(p, key, w, f, found) })
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failure, w.settled = err, !passes(err)
		if !w.settled {
			w.ended = nil // the next one tries again
		}
	})
	return w.ended, err
}

// passes reports whether another attempt to attach may succeed where this one failed.
func passes(err error) bool {
	var p *proc.PanicError
	return proc.HeldUp(err) || errors.As(err, &p) || errors.Is(err, context.Canceled) || errors.Is(err, errTooManyProbes) ||
		errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}

func (gs *guests) attachWatched(p *process, key watchedKey, w *watchedFile, f *os.File, found valuePlan) error {
	e := gs.agent.events
	plan, err := inTime(gs.alive, gs.attaching, p.pid, func() (*attachedPlan, error) { return e.attachValues(found, f) },
		func(plan *attachedPlan) { e.remove(context.Background(), []*attachedPlan{plan}) })
	if err != nil {
		return err
	}
	e.adopt([]*attachedPlan{plan})
	gs.agent.log.Debug("values are recorded", "probe", key.watch.spec.Place(), "file", f.Name())
	gs.keeping.Lock()
	defer gs.keeping.Unlock()
	w.plan = plan
	return nil
}

func (gs *guests) setIdle(plans []*attachedPlan, idle bool) {
	if len(plans) > 0 {
		gs.agent.events.setIdle(plans, idle)
	}
}

// leave notes that p is gone: what no other process maps expires.
func (gs *guests) leave(p *process) {
	gs.keeping.Lock()
	defer gs.keeping.Unlock()
	now := monotonic()
	idle := false
	for _, im := range gs.images.leave(p, now) {
		gs.setIdle(im.attached.plans, true)
		idle = true
	}
	for _, w := range gs.values.leave(p, now) {
		if w.plan != nil {
			gs.setIdle([]*attachedPlan{w.plan}, true)
		}
		idle = true
	}
	if idle {
		select {
		case gs.left <- struct{}{}:
		default:
		}
	}
}

// expire takes the probes of libraries away that no process has mapped for a while, until ctx ends.
func (gs *guests) expire(ctx context.Context) {
	for {
		next, ok := gs.expireNow(ctx, monotonic())
		var due <-chan time.Time
		if ok {
			due = time.After(next - monotonic())
		}
		select {
		case <-ctx.Done():
			return
		case <-gs.left:
		case <-due:
		}
	}
}

// expireNow does so once. It returns when there may be more to do, false if not before a process ends.
func (gs *guests) expireNow(ctx context.Context, now time.Duration) (next time.Duration, ok bool) {
	gs.keeping.Lock()
	images, next, ok := gs.images.expire(now)
	values, nextValue, more := gs.values.expire(now)
	gs.keeping.Unlock()
	if more && (!ok || nextValue < next) {
		next, ok = nextValue, true
	}
	// Nobody has them: whoever had them had a process that mapped them.
	for _, im := range images {
		im.mu.Lock()
		ended := im.ended
		im.mu.Unlock()
		gs.after(ended, func() { gs.detach(ctx, &im.attached) })
	}
	for _, w := range values {
		w.mu.Lock()
		ended := w.ended
		w.mu.Unlock()
		gs.after(ended, func() {
			if w.plan != nil {
				gs.agent.events.remove(ctx, []*attachedPlan{w.plan})
			}
		})
	}
	return next, ok
}

// after calls f once an attempt to attach has ended, which does not hold up others.
func (gs *guests) after(ended <-chan struct{}, f func()) {
	select {
	case <-ended:
		f()
		return
	default:
	}
	if ended == nil {
		f()
		return
	}
	gs.ended.Go(func() {
		<-ended
		f()
	})
}

// detach takes the probes of one library away.
func (gs *guests) detach(ctx context.Context, probes *imageProbes) {
	if probes.code != nil {
		if err := gs.probes.Detach(probes.code); err != nil {
			gs.agent.log.Error("cannot take probes away", "err", err)
		}
	}
	if e := gs.agent.events; e != nil {
		e.remove(ctx, probes.plans)
	}
	*probes = imageProbes{}
}

// close ends what expires, and takes all probes of code away.
func (gs *guests) close() error {
	gs.end()
	gs.ended.Wait()
	return gs.probes.Close()
}
