package agent

import (
	"context"
	"os"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// libraryGrace is how long a library keeps its probes after its last process has ended. To attach them takes some 100 ms,
// which a service that is restarted all the time shall not cost every time; but a container's file system cannot be
// unmounted before.
const libraryGrace = 2 * time.Second

// Bounds on attaching, which goes on outside of the pool for reads: to attach to one library takes the kernel some 100 ms,
// and much longer on a busy machine. One library at a time, as the kernel visits all processes that map it.
var attaching = proc.PoolOptions{Workers: 1, MaxStuck: 4, Deadline: time.Minute}

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

// watched reports whether a spec of values is attached to a file for other processes already, and is for p from now on.
func (gs *guests) watched(p *process, key watchedKey) bool {
	gs.keeping.Lock()
	defer gs.keeping.Unlock()
	if _, ok := gs.values.kept[key]; !ok {
		return false
	}
	gs.holdWatched(p, key)
	return true
}

// holdWatched returns the file of that key, attached or not, which p maps; keeping is held.
func (gs *guests) holdWatched(p *process, key watchedKey) *watchedFile {
	w, woken := gs.values.take(key, p, func() *watchedFile { return &watchedFile{} })
	if woken && w.plan != nil {
		gs.setIdle([]*attachedPlan{w.plan}, false)
	}
	return w
}

// watch attaches a spec of values to a file that p maps.
func (gs *guests) watch(p *process, key watchedKey, f *os.File, found valuePlan) error {
	e := gs.agent.events
	gs.keeping.Lock()
	w := gs.holdWatched(p, key)
	gs.keeping.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settled {
		return nil
	}
	w.settled = true
	plan, err := inTime(gs.attaching, p.pid, func() (*attachedPlan, error) { return e.attachValues(found, f) },
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
	for _, im := range images {
		im.mu.Lock() // nobody has it: whoever had it had a process that mapped it
		gs.detach(ctx, &im.attached)
		im.mu.Unlock()
	}
	for _, w := range values {
		w.mu.Lock()
		if w.plan != nil {
			gs.agent.events.remove(ctx, []*attachedPlan{w.plan})
		}
		w.mu.Unlock()
	}
	return next, ok
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
