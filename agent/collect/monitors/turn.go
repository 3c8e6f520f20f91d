package monitors

import (
	"context"
	"errors"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

// windowCost is the usual maximum cost of a window.
func (e *Engine) windowCost() time.Duration { return MaxHits * e.listener.HitTime() }

// listen opens one window, on the process whose turn it is.
func (e *Engine) listen(ctx context.Context) {
	if len(e.now) == 0 {
		return
	}
	e.turn++
	g := e.now[e.turn%len(e.now)]
	if e.failed[g.Identity] {
		return
	}
	e.attempt(g.Identity, func() error {
		e.listenTo(ctx, g)
		return nil
	})
}

// listenTo opens one window on a process.
func (e *Engine) listenTo(ctx context.Context, g Guest) {
	r := e.recordOf(g.Identity)
	cost := e.windowCost()
	if !e.bucket.Take(cost) {
		e.locked(func() { r.lose(e.opt.Now(), missed{skipped: 1}) })
		return
	}
	var w Window
	var group string
	var ok bool
	e.locked(func() { w, group, ok = r.plan.next(g.Sites, &r.threads) })
	if !ok {
		e.bucket.Settle(cost, 0)
		return
	}
	observed := Observed{Guest: g.Identity, Window: w}
	var err error
	observed.Result, err = e.listener.Listen(ctx, g.Identity, g.Memory, w)
	e.bucket.Settle(cost, observed.Result.Cost)
	switch {
	case err != nil:
	case group == "":
		e.locked(func() {
			r.plan.learn(w, observed.Result, &r.threads)
			r.keep(measurement{at: e.opt.Now(), cost: observed.Result.Cost})
		})
		return
	default:
		at := e.opt.Now()
		if err = e.source.Take(ctx, &observed); err == nil {
			r.plan.measured(w, group, observed.Result)
			e.locked(func() { r.add(at, group, &observed) })
			return
		}
	}
	if ctx.Err() == nil { // a window that the end of the recording cuts short is not missing
		e.locked(func() { r.lose(e.opt.Now(), missed{void: 1}) })
	}
	e.report(ctx, g.PID, err)
}

// report logs errors that are not temporary, once.
func (e *Engine) report(ctx context.Context, pid int, err error) {
	if err == nil || watch.Refused(err) || errors.Is(err, watch.ErrChanged) || ctx.Err() != nil ||
		err.Error() == e.last {
		return
	}
	e.last = err.Error()
	e.opt.Log.Warn("cannot observe monitor enters", "pid", pid, "err", err)
}

// locked calls f with the lock.
func (e *Engine) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}
