package listener

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

// A Source selects what an Engine watches. The engine's goroutine calls it.
type Source interface {
	// Next chooses a process, by how busy it is, and the entries of its hottest methods, in any
	// order. It returns false if there is nothing to watch now.
	Next() (Guest, []Entry, bool)
	// Failed reports a panic while a process was watched. The engine does not watch it any more.
	Failed(proc.Identity, error)
}

// An Engine watches the hottest methods of processes, three at a time in rotation, at random
// moments. It puts the observed calls into the agent's event stream, or passes them to Guest.Take.
// It implements calls.Engine for processes of all kinds.
//
// A hot method's calls come faster than they can be observed, so the weights of the resulting graph
// compare methods roughly; the weights of one callee's call sites are right.
type Engine struct {
	listener *Listener
	source   Source
	log      *slog.Logger
	cancel   context.CancelFunc
	done     chan struct{}
	watches  Tally
	tuned    chan struct{} // signals that rate changed

	window sync.Mutex // held while one is open

	rateMu sync.Mutex
	rate   profile.Rate

	// The engine's goroutine owns these.
	order  watch.Rotations[proc.Identity, Entry]
	failed map[proc.Identity]bool // processes over which it panicked
	last   string                 // error that was logged
}

// listening is the length of a window: as long as a thousand calls of a method worth watching, and
// shorter than most GC pauses. In a hot method, the limit of hits ends the window earlier.
const listening = 3 * time.Millisecond

// NewEngine returns an engine that opens windows as soon as it is tuned: Hz windows a second, each
// of up to Samples hits. It stops with Close, which must be called before l's.
func NewEngine(l *Listener, s Source, log *slog.Logger) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{
		listener: l, source: s, log: log, cancel: cancel, done: make(chan struct{}), tuned: make(chan struct{}, 1),
		order: watch.Rotations[proc.Identity, Entry]{}, failed: map[proc.Identity]bool{},
	}
	go e.run(ctx)
	return e
}

// Name implements calls.Engine.
func (e *Engine) Name() string { return calls.Listener }

// Notes implements calls.Engine. There are none.
func (e *Engine) Notes() []string { return nil }

// Tune changes the rate. Stride is ignored: a breakpoint traps at every call. A window has at most
// MaxHits samples. Hz 0 pauses the engine.
func (e *Engine) Tune(r profile.Rate) error {
	r.Samples = min(r.Samples, MaxHits)
	if err := (Window{Duration: listening, MaxHits: r.Samples}).check(1); err != nil && r.Hz > 0 {
		return err
	}
	e.rateMu.Lock()
	e.rate = r
	e.rateMu.Unlock()
	select {
	case e.tuned <- struct{}{}:
	default:
	}
	return nil
}

// Wait returns when no window is open. During a pause no window is opened, so all observed calls
// are then in the ring.
func (e *Engine) Wait() {
	e.window.Lock()
	defer e.window.Unlock()
}

func (e *Engine) paused() bool {
	e.rateMu.Lock()
	defer e.rateMu.Unlock()
	return e.rate.Hz <= 0
}

// Cost implements calls.Engine: of all windows of its Listener.
func (e *Engine) Cost() budget.Cost { return e.listener.Cost() }

// Watches implements calls.Watching.
func (e *Engine) Watches() calls.Watches { return e.watches.Watches() }

// Close ends the open window, if any, and waits for its end.
func (e *Engine) Close() error {
	e.cancel()
	<-e.done
	return nil
}

func (e *Engine) run(ctx context.Context) {
	defer close(e.done)
	for {
		e.rateMu.Lock()
		rate := e.rate
		e.rateMu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-e.tuned:
		case <-watch.Pause(rate.Hz):
			e.listen(ctx, rate.Samples)
		}
	}
}

// listen opens one window, unless a pause has begun meanwhile.
func (e *Engine) listen(ctx context.Context, hits int) {
	e.window.Lock()
	defer e.window.Unlock()
	if e.paused() {
		return
	}
	g, hot, ok := e.source.Next()
	if !ok || len(hot) == 0 || e.failed[g.Identity] {
		return
	}
	var r Result
	err := proc.Catch(func() (err error) {
		r, err = e.listener.Listen(ctx, g, e.order.Get(g.Identity).Next(hot, MaxEntries),
			Window{Duration: listening, MaxHits: hits, Deliver: g.Take == nil})
		if err == nil && g.Take != nil {
			err = g.Take(r)
		}
		return err
	})
	if panicked := (*proc.PanicError)(nil); errors.As(err, &panicked) {
		e.failed[g.Identity] = true
		e.source.Failed(g.Identity, err)
	}
	if !e.watches.Add(ctx, &r, err) {
		return
	}
	if text := err.Error(); text != e.last {
		e.last = text
		e.log.Warn("cannot observe calls", "pid", g.PID, "err", err)
	}
}
