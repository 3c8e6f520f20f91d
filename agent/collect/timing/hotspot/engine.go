package hotspot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

// DefaultShare is the part of a process's CPU time that windows take if Options do not say.
const DefaultShare = 0.01

// MaxProcesses bounds Options.PIDs.
const MaxProcesses = 16

// Options of an Engine. The first two are needed.
type Options struct {
	PIDs   []int // JVMs, up to MaxProcesses
	Method Method

	Loops       bool              // time its loops as well, inlined ones included
	Breakpoints breakpoint.Policy // on which machines breakpoints may be set
	Share       float64           // part of each process's CPU time that windows may take; 0 means DefaultShare
	Root        proc.Root         // where processes are; "" means proc.DefaultRoot
	Watcher     *watch.Watcher    // the watcher of the agent in this program, if there is one
	Log         *slog.Logger      // nil: none
}

// An Engine times invocations of a method in some JVMs until it is closed. It implements
// timing.Engine.
type Engine struct {
	opt    Options
	pool   *proc.Pool
	timer  *timer
	cancel context.CancelFunc
	runs   sync.WaitGroup

	mu      sync.Mutex
	queue   []timing.Timing
	arrived chan struct{} // closed when the queue has something, or everything ended
	running int           // processes
	stats   timing.Stats
	spent   time.Duration
	why     []error // why processes are not timed any more
	guests  []*guest
	loops   []string // by number of the loop, less 1: method and bytecode index
	lines   []string // in the source: "Search.java:42, "; "" if not known
}

var _ timing.Engine = (*Engine)(nil)

// maxQueue bounds timings that nobody took.
const maxQueue = 1 << 16

// Causes of lost timings, as Stats has them.
const (
	lostElsewhere = "called from another place than those watched"
	lostUnwound   = "ended by an exception or a deoptimisation of the caller"
	lostDeep      = "recursion deeper than 8"
	lostThread    = "thread without a slot"
	lostOpen      = "still running when the window ended"
	lostReplaced  = "the code was replaced meanwhile"
	lostFailed    = "the window failed or was cut short"
	lostUntaken   = "not taken in time"
	lostRounds    = "rounds of a loop across its end, or with few iterations left"
)

// Open attaches to the JVMs and begins to time. The error says which process cannot be timed, or
// why none can. Close ends it.
func Open(ctx context.Context, opt Options) (_ *Engine, err error) {
	if opt, err = opt.checked(); err != nil {
		return nil, err
	}
	e := &Engine{opt: opt, pool: proc.NewPool(proc.PoolOptions{}), arrived: make(chan struct{})}
	e.stats.Lost = map[string]uint64{}
	defer func() {
		if err != nil {
			e.closeGuests()
		}
	}()
	for _, pid := range opt.PIDs {
		p, err := attachProcess(ctx, opt.Root, e.pool, pid, opt.Method)
		if err != nil {
			return nil, err
		}
		e.guests = append(e.guests, newGuest(e, p))
	}
	if e.timer, err = newTimer(ctx, opt.Root, opt.Watcher); err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.Background())
	e.cancel, e.running = cancel, len(e.guests)
	for _, g := range e.guests {
		e.runs.Go(func() { e.ended(g, proc.Catch(func() error { return g.run(run) })) })
	}
	return e, nil
}

// checked are the options with their defaults. The error says what is wrong with them, or why no
// breakpoints may be set.
func (opt Options) checked() (Options, error) {
	if len(opt.PIDs) == 0 || len(opt.PIDs) > MaxProcesses || opt.Method.Function == "" {
		return opt, fmt.Errorf("time %d processes and method %q: want 1 to %d, and a method", len(opt.PIDs), opt.Method,
			MaxProcesses)
	}
	if err := opt.Breakpoints.Check(); err != nil {
		return opt, err
	}
	if opt.Share == 0 {
		opt.Share = DefaultShare
	}
	if opt.Root == "" {
		opt.Root = proc.DefaultRoot
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Watcher == nil {
		opt.Watcher = watch.New(opt.Root)
	}
	return opt, nil
}

// Close ends the windows that may be open, and waits for that.
func (e *Engine) Close() error {
	e.cancel()
	e.runs.Wait()
	return errors.Join(e.timer.Close(), e.closeGuests())
}

func (e *Engine) closeGuests() error {
	var errs []error
	for _, g := range e.guests {
		errs = append(errs, g.process.Close())
	}
	return errors.Join(errs...)
}

// ended notes that a process is not timed any more.
func (e *Engine) ended(g *guest, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	if err != nil && !errors.Is(err, context.Canceled) {
		e.why = append(e.why, fmt.Errorf("process %d: %w", g.process.PID, err))
		e.opt.Log.Warn("process is not timed any more", "pid", g.process.PID, "err", err)
	}
	if e.running == 0 {
		e.wake()
	}
}

// wake wakes those who wait for timings; mu is held.
func (e *Engine) wake() {
	select {
	case <-e.arrived:
	default:
		close(e.arrived)
	}
}

// Take implements timing.Engine. When no process is timed any more it returns why; proc.ErrGone is
// among the reasons if one has ended.
func (e *Engine) Take(ctx context.Context, list []timing.Timing) ([]timing.Timing, error) {
	for {
		e.mu.Lock()
		if len(e.queue) > 0 {
			list = append(list, e.queue...)
			e.queue = e.queue[:0]
			if e.running > 0 {
				e.arrived = make(chan struct{})
			}
			e.mu.Unlock()
			return list, nil
		}
		if e.running == 0 {
			err := errors.Join(e.why...)
			e.mu.Unlock()
			if err == nil {
				err = context.Canceled
			}
			return list, err
		}
		arrived := e.arrived
		e.mu.Unlock()
		select {
		case <-arrived:
		case <-ctx.Done():
			return list, ctx.Err()
		}
	}
}

// deliver hands out the timings of a window, and counts what was lost in it.
func (e *Engine) deliver(list []timing.Timing, lost map[string]int, spent time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spent += spent
	for cause, n := range lost {
		if n > 0 {
			e.stats.Lost[cause] += uint64(n)
		}
	}
	room := list[:min(len(list), maxQueue-len(e.queue))]
	if n := len(list) - len(room); n > 0 {
		e.stats.Lost[lostUntaken] += uint64(n)
	}
	e.stats.Taken += uint64(len(room))
	e.queue = append(e.queue, room...)
	if len(e.queue) > 0 {
		e.wake()
	}
}

// Stats implements timing.Engine.
func (e *Engine) Stats() timing.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return timing.Stats{Taken: e.stats.Taken, Lost: maps.Clone(e.stats.Lost)}
}

// Spent is what the windows took of the processes' CPU time so far.
func (e *Engine) Spent() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.spent
}

// Cost implements timing.Engine. It is what a timing contained of its traps before that was
// subtracted: the mean of the processes. Its standard error includes what is not known of the
// caches that a trap empties. Zero before it is known. The program loses about twice as much, as
// the traps began before and ended after what is timed.
func (e *Engine) Cost() (cost, within time.Duration) {
	n := 0
	for _, g := range e.guests {
		mean, of := g.cost.get()
		if mean == 0 {
			mean, of = g.rounds.get()
		}
		if mean > 0 {
			cost += mean
			within = max(within, of)
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	excess := e.timer.excess
	return cost/time.Duration(n) + excess, time.Duration(math.Hypot(float64(within), float64(excess)))
}

// Notes are sentences about what the timings do not contain.
func (e *Engine) Notes() (notes []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, name := range e.loops {
		notes = append(notes, fmt.Sprintf("loop %d: %s%s", i+1, e.lines[i], name))
	}
	for _, g := range e.guests {
		notes = append(notes, g.versionNotes...)
		notes = append(notes, g.notes...)
	}
	return notes
}
