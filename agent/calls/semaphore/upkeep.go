package semaphore

import (
	"context"
	"errors"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

const (
	upkeepInterval  = 2 * time.Second
	refreshInterval = 10 * time.Second
)

// silentBursts is after how many bursts without a single call people are told. A burst lasts up to a second, and
// begins while the process runs.
const silentBursts = 5

// keep follows guests that end, strays that turn up and CPUs that come and go, until ctx ends.
func (e *Engine) keep(ctx context.Context) {
	defer close(e.kept)
	upkeep, refresh := time.NewTicker(upkeepInterval), time.NewTicker(refreshInterval)
	defer upkeep.Stop()
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case pid := <-e.strays:
			e.Look(ctx, pid) // whoever it is, it becomes a guest, and its semaphore is cleared on the way
		case <-upkeep.C:
			for _, g := range e.all() {
				e.check(ctx, g)
			}
		case <-refresh.C:
			e.refresh()
		}
	}
}

// check forgets a guest that is gone, and tells of one that makes no calls.
func (e *Engine) check(ctx context.Context, g *guest) {
	alive := e.alive(ctx, g)
	e.mu.Lock()
	if !alive {
		e.forget(g)
		e.mu.Unlock()
		if ctx.Err() == nil {
			e.guard.give(verbRemove, g.id, 0, nil) // which has noticed, or will: an error says nothing new
		}
		return
	}
	defer e.mu.Unlock()
	if c := e.counters(g); !g.silent && c.hits == 0 && c.bursts >= silentBursts {
		g.silent = true
		e.note("process %d passed no probe in %d bursts: it called no function, or was started without USE_ZEND_DTRACE=1", g.id.PID, c.bursts)
	} else if !g.silent && c.mismatched > 0 && c.mismatched == c.hits-c.refused {
		g.silent = true
		e.note("calls of process %d have no names: the structures of its %v are not those of that version", g.id.PID, g.image.version)
	}
}

// alive reports whether the address space of a guest still exists.
func (e *Engine) alive(ctx context.Context, g *guest) bool {
	if g.isDropped(e) {
		return e.opt.Proc.Check(g.id) == nil // nobody may touch its memory
	}
	err := e.opt.Pool.Do(ctx, g.id.PID, func() error {
		_, err := g.cell.value()
		return err
	})
	return !errors.Is(err, proc.ErrGone) && !errors.Is(err, proc.ErrUnmapped)
}

func (g *guest) isDropped(e *Engine) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return g.dropped
}

func (e *Engine) refresh() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ticks == nil {
		return
	}
	if err := e.ticks.Refresh(); err != nil {
		e.log.Warn("cannot follow CPUs that came or went", "err", err)
	}
}
