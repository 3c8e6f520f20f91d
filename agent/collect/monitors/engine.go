package monitors

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Guest is a JVM and the places where its hot code acquires monitors.
type Guest struct {
	proc.Identity
	Memory vmruntime.Memory
	Sites  []Site
}

// An Observed is the result of one window of a guest.
type Observed struct {
	Guest   proc.Identity
	Window  Window
	Result  Result
	Classes map[uint64]string // by Hit.Klass; filled in by Source.Take
}

// A Source selects what an Engine watches, and takes the results. The engine's goroutine calls its
// methods.
type Source interface {
	// Guests returns the processes to watch. It is called about once a second.
	Guests(context.Context) []Guest
	// Take names the classes of the hits and folds the contexts. If it fails, the window is void.
	Take(context.Context, *Observed) error
	// Failed reports a panic while a process was watched. The engine does not watch it any more.
	Failed(proc.Identity, error)
}

// Options of an Engine.
type Options struct {
	Share float64 // part of the processes' CPU time that windows may take
	Root  proc.Root
	Now   func() time.Duration // CLOCK_MONOTONIC
	Log   *slog.Logger
}

const (
	windowsPerSecond = 10 // measuring ones: 44 took 3 to 16 % of a process
	surveysPerSecond = 30 // while there are sites without a survey: most have no hits, and cost little
	refreshInterval  = time.Second
)

// An Engine watches the monitor acquisitions of processes, at random moments, until it is closed.
type Engine struct {
	listener *Listener
	source   Source
	opt      Options
	cancel   context.CancelFunc
	done     chan struct{}

	mu     sync.Mutex
	guests map[proc.Identity]*record

	// The engine's goroutine owns these.
	now    []Guest
	bucket budget.Bucket
	turn   int
	last   string                 // error that was logged
	failed map[proc.Identity]bool // processes over which it panicked
}

// maxRecords bounds the records of processes, some 2 MB each at most; beyond it, those of ended
// processes are dropped.
const maxRecords = 64

// NewEngine begins to watch. Close must be called before l's.
func NewEngine(l *Listener, s Source, opt Options) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		listener: l, source: s, opt: opt, cancel: cancel, done: make(chan struct{}),
		guests: map[proc.Identity]*record{}, failed: map[proc.Identity]bool{},
	}
	go e.run(ctx)
	return e
}

// Close ends the open window, if any, and waits for its end. Acquisitions still answers from
// earlier observations.
func (e *Engine) Close() {
	e.cancel()
	<-e.done
}

func (e *Engine) run(ctx context.Context) {
	defer close(e.done)
	refresh := time.NewTicker(refreshInterval)
	defer refresh.Stop()
	e.refresh(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-refresh.C:
			e.refresh(ctx)
		case <-e.pause():
			e.listen(ctx)
		}
	}
}

// pause returns a random time until the next window.
func (e *Engine) pause() <-chan time.Time {
	rate := windowsPerSecond
	for _, g := range e.now {
		if e.recordOf(g.Identity).plan.fresh(g.Sites) {
			rate = surveysPerSecond
		}
	}
	return watch.Pause(rate)
}

// refresh finds out which processes there are, and how long their threads ran.
func (e *Engine) refresh(ctx context.Context) {
	e.now = slices.DeleteFunc(e.source.Guests(ctx), func(g Guest) bool { return e.failed[g.Identity] })
	for _, g := range e.now {
		e.attempt(g.Identity, func() error { return e.refreshGuest(&g) })
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var used time.Duration
	for _, r := range e.guests {
		used += r.threads.Used()
	}
	e.bucket.FillShare(e.opt.Share, used, e.windowCost())
}

// refreshGuest finds out the sites of a process, and how long its threads ran.
func (e *Engine) refreshGuest(g *Guest) error {
	r := e.recordOf(g.Identity)
	e.mu.Lock()
	defer e.mu.Unlock()
	r.plan.retain(g.Sites)
	if err := r.threads.Refresh(e.opt.Root, g.Identity, e.opt.Now()); err != nil {
		e.opt.Log.Debug("cannot read threads", "pid", g.PID, "err", err)
	}
	return nil
}

// attempt calls do for a process. If it panics, the process is not watched any more.
func (e *Engine) attempt(id proc.Identity, do func() error) error {
	err := proc.Catch(do)
	if panicked := (*proc.PanicError)(nil); errors.As(err, &panicked) {
		e.failed[id] = true
		e.source.Failed(id, err)
	}
	return err
}

// recordOf returns the record of a process.
func (e *Engine) recordOf(id proc.Identity) *record {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.guests[id]
	if r == nil {
		for old := range e.guests {
			if len(e.guests) >= maxRecords && e.opt.Root.Check(old) != nil {
				delete(e.guests, old)
			}
		}
		r = &record{plan: newPlan()}
		e.guests[id] = r
	}
	return r
}
