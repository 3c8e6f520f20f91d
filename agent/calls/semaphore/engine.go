package semaphore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Name is what --engine chooses the engine by.
const Name = "semaphore"

// Options configure an Engine.
type Options struct {
	// AllowGuestWrites says that the two bytes of a semaphore may be written in PHP processes.
	AllowGuestWrites bool
	Objects          *bpf.Objects // the agent's; they outlive the engine
	Proc             proc.Root    // where procfs is; "" means /proc
	Pool             *proc.Pool   // for what a process can delay; nil means one of its own
	Rate             calls.Rate   // to begin with; the zero value samples nothing until Tune
	Guard            []string     // the command that calls Guard; nil means this program with GuardVerb
	Log              *slog.Logger // nil means none
}

// ErrNotAllowed: the engine is off.
var ErrNotAllowed = errors.New("it writes two bytes into PHP processes: allow that with --allow-guest-writes")

// An Engine samples calls of PHP processes. It implements calls.Engine; its methods may be called from several
// goroutines at once.
type Engine struct {
	opt     Options
	log     *slog.Logger
	php     *bpf.PhpObjects
	uprobes attach.Uprobes
	guard   *sentry
	names   names
	weigher weigher

	stop    context.CancelFunc // of keep
	kept    chan struct{}      // closed when keep has ended
	strays  chan int           // pids
	closing sync.Once
	closed  error

	looking sync.Mutex // held while a process is adopted, which can attach probes

	mu      sync.Mutex
	rate    calls.Rate
	ticks   *attach.Ticks // nil while nothing ticks
	images  map[fileID]*image
	refused map[fileID]error // files that cannot be used
	cookies uint32           // probe sites given out
	guests  map[int]*guest
	retired totals // of guests that are gone
	notes   []string
	broken  error // why nothing is sampled any more
}

var _ calls.Engine = (*Engine)(nil)

// Try starts the engine, or says why it cannot work. Processes are sampled once Look has found them.
func Try(opt Options) (_ *Engine, err error) {
	if !opt.AllowGuestWrites {
		return nil, ErrNotAllowed
	}
	if opt.Pool == nil {
		opt.Pool = proc.NewPool(proc.PoolOptions{})
	}
	if opt.Guard == nil {
		opt.Guard = []string{"/proc/self/exe", GuardVerb}
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		opt: opt, log: opt.Log, uprobes: attach.NewUprobes(), names: newNames(),
		kept: make(chan struct{}), strays: make(chan int, 64),
		images: map[fileID]*image{}, refused: map[fileID]error{}, guests: map[int]*guest{},
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	defer func() {
		if err != nil {
			stop()
			e.release()
		}
	}()
	if e.php, err = opt.Objects.LoadPHP(); err != nil {
		return nil, err
	}
	if e.guard, err = startGuard(opt.Guard, e.php.PhpNotices, e.hear); err != nil {
		return nil, err
	}
	if err := e.Tune(opt.Rate); err != nil {
		return nil, err
	}
	go e.keep(ctx)
	return e, nil
}

// Name implements calls.Engine.
func (e *Engine) Name() string { return Name }

// Tune implements calls.Engine. No samples or no ticks pause it.
func (e *Engine) Tune(r calls.Rate) error {
	if r.Hz < 0 || r.Stride < 0 || r.Samples < 0 {
		return fmt.Errorf("rate %v is negative", r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return e.broken
	}
	if err := e.php.PhpRates.Put(uint32(0), bpf.PHPRate{Stride: uint32(max(1, r.Stride)), Samples: uint32(r.Samples)}); err != nil {
		return fmt.Errorf("set burst: %w", err)
	}
	if r.Hz != e.rate.Hz {
		if err := e.tick(r.Hz); err != nil {
			return err
		}
	}
	e.rate = r
	e.weigher.tune(r.Hz)
	return nil
}

// tick replaces the ticks; mu is held.
func (e *Engine) tick(hz int) error {
	var next *attach.Ticks
	if hz > 0 {
		t, err := attach.NewTicks(e.php.PhpTick, hz)
		if err != nil {
			return err
		}
		if err := t.Start(); err != nil {
			return errors.Join(err, t.Close())
		}
		next = t
	}
	if e.ticks != nil {
		e.ticks.Close()
	}
	e.ticks = next
	return nil
}

// Fold weighs a named call of the event stream: once its burst is over, add gets its edges, and how many calls of the
// guest each stands for. So what add gets are calls before c, of the same process. It is false for a call that is not
// this engine's or whose callee has no name. Calls must come in the order of the stream.
func (e *Engine) Fold(c *bpf.NamedCall, add Add) bool {
	edge, ok := e.Edge(c)
	if c.Engine == bpf.EngineSemaphore {
		e.weigher.take(c, edge, ok, add)
	}
	return ok
}

// Flush hands out the calls of bursts that are not over, of all processes: at the end of a window.
func (e *Engine) Flush(add Add) { e.weigher.flush(add) }

// Edge returns the edge of a named call that this engine sampled; false for others', and where the callee has no name.
func (e *Engine) Edge(c *bpf.NamedCall) (calls.Edge, bool) {
	if c.Engine != bpf.EngineSemaphore {
		return calls.Edge{}, false
	}
	return e.names.edge(c)
}

// Notes are what a reader of the profiles must know, one sentence each: why a process has no calls.
func (e *Engine) Notes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.notes)
}

// note remembers a sentence; mu is held. There is room for what people read.
func (e *Engine) note(format string, args ...any) {
	const enough = 32
	text := fmt.Sprintf(format, args...)
	if len(e.notes) < enough && !slices.Contains(e.notes, text) {
		e.notes = append(e.notes, text)
		e.log.Warn(text)
	}
}

// Close implements calls.Engine. All semaphores are 0 when it returns without an error.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.stop()
		<-e.kept
		e.closed = e.release()
	})
	return e.closed
}

// release gives everything back that Try took.
func (e *Engine) release() error {
	e.looking.Lock()
	defer e.looking.Unlock()
	e.mu.Lock()
	e.broken = errClosed
	var errs []error
	if e.ticks != nil {
		errs = append(errs, e.ticks.Close())
	}
	e.mu.Unlock()
	if e.guard != nil {
		errs = append(errs, e.guard.close())
	}
	// The guard has done this already, unless it was killed.
	for _, g := range e.all() {
		errs = append(errs, e.disarm(g))
		e.mu.Lock()
		e.forget(g)
		e.mu.Unlock()
	}
	for _, im := range e.images {
		errs = append(errs, im.close())
	}
	if e.php != nil {
		errs = append(errs, e.php.Close())
	}
	return errors.Join(errs...)
}

var errClosed = errors.New("the semaphore engine is closed")

// disarm clears what is left in a guest that nobody arms any more. One that is gone is fine, and one whose memory may
// not be touched is left alone.
func (e *Engine) disarm(g *guest) error {
	if g.isDropped(e) {
		return nil
	}
	return e.opt.Pool.Do(context.Background(), g.id.PID, func() error {
		_, err := g.cell.recover()
		if errors.Is(err, proc.ErrGone) || errors.Is(err, unix.EBADF) {
			return nil
		}
		return err
	})
}

// hear takes what the guard tells. It gives no orders.
func (e *Engine) hear(o order) {
	switch o.Verb {
	case verbStray:
		select {
		case e.strays <- int(o.PID):
		default: // it comes by again
		}
	case verbHeld:
		e.drop(o, errHeld)
	case verbHung:
		e.drop(o, errHung)
	case 0:
		go e.guardGone()
	}
}

// drop notes that the guard let go of a process.
func (e *Engine) drop(o order, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.note("calls of process %d are not sampled any more: %v", o.PID, why)
	if g := e.guests[int(o.PID)]; g != nil && g.id.Ticks() == o.StartTicks {
		g.dropped = true
		e.php.PhpGuests.Delete(o.PID)
	}
}

// guardGone does the guard's last duty in its place.
func (e *Engine) guardGone() {
	e.mu.Lock()
	if e.broken != nil {
		e.mu.Unlock()
		return
	}
	e.broken = errGuard
	e.php.PhpRates.Put(uint32(0), bpf.PHPRate{Stride: 1})
	if e.ticks != nil {
		e.ticks.Close()
		e.ticks = nil
	}
	e.note("no calls of PHP are sampled any more: %v", errGuard)
	e.mu.Unlock()
	for _, g := range e.all() {
		if err := e.disarm(g); err != nil {
			e.log.Warn("cannot clear semaphore", "pid", g.id.PID, "err", err)
		}
	}
}
