package usdt

import (
	"context"
	"errors"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

const (
	upkeepInterval  = 2 * time.Second
	refreshInterval = 10 * time.Second
)

// silentBursts is the number of bursts without a single call after which that is noted.
const silentBursts = 20

// keep follows processes that end and CPUs that come and go, until ctx ends. If processes are
// sampled, it measures the cost of windows.
func (e *Engine) keep(ctx context.Context) {
	defer close(e.kept)
	upkeep, refresh := time.NewTicker(upkeepInterval), time.NewTicker(refreshInterval)
	defer upkeep.Stop()
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-upkeep.C:
			guests := e.all()
			if len(guests) > 0 {
				e.measure()
			}
			for _, g := range guests {
				e.check(g)
			}
		case <-refresh.C:
			e.refresh()
		}
	}
}

// check forgets a process that has ended, and notes one that makes no calls.
func (e *Engine) check(g *guest) {
	gone := errors.Is(e.opt.Proc.Check(g.id), proc.ErrGone)
	e.mu.Lock()
	defer e.mu.Unlock()
	if gone {
		e.forget(g)
		return
	}
	l := &languages[g.image.language]
	if c := e.counters(g); !g.silent && c.hits == 0 && c.bursts >= silentBursts {
		g.silent = true
		e.note("process %d did not execute %s:%s in %d bursts: it called no function, or: %s", g.id.PID, l.provider,
			l.probe, c.bursts, l.passes)
	} else if !g.silent && c.mismatched > 0 && c.sampled == 0 {
		g.silent = true
		e.note("calls of process %d have no names: its structures differ from those of %v", g.id.PID,
			g.image.php.version)
	}
}

func (e *Engine) refresh() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ticks == nil {
		return
	}
	if err := e.ticks.Refresh(); err != nil {
		e.log.Warn("cannot follow CPUs that went online or offline", "err", err)
	}
}
