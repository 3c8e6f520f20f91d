package usdt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// MaxHz is the highest useful number of ticks a second: each requests a window, and the kernel
// takes some 50 ms to open and close one.
const MaxHz = 29

// Options configure an Engine.
type Options struct {
	Objects *bpf.Objects // the agent's; they outlive the engine
	Proc    proc.Root    // where procfs is; "" means /proc
	Pool    *proc.Pool   // for operations that a process can delay; nil means a pool of its own
	Rate    profile.Rate // to begin with; the zero value samples nothing until Tune
	Log     *slog.Logger // nil means none

	CountRead func(error) // counts a file of a process that was opened, or not, by its error; nil counts nothing
}

// An Engine samples calls of interpreters. It implements calls.Engine; its methods may be called
// from several goroutines at once.
type Engine struct {
	opt     Options
	log     *slog.Logger
	usdt    *bpf.UsdtObjects
	notices *ring.Reader
	uprobes attach.Uprobes
	names   names
	weigher weigher
	began   time.Time

	interrupt atomic.Int64 // ns that an interrupt of its CPU takes from a process
	measured  int          // how often measuring it was tried; owned by keep

	stop     context.CancelFunc // ends keep
	kept     chan struct{}      // closed when keep has ended
	listened chan struct{}      // closed when listen has ended
	serving  sync.WaitGroup     // windows
	closing  sync.Once
	ended    error

	looking sync.Mutex // held while a process is adopted

	mu       sync.Mutex
	rate     profile.Rate
	ticks    *attach.Ticks // nil while nothing ticks
	images   map[fileID]*image
	refused  map[fileID]error // files that cannot be used
	cookies  uint32           // probe sites given out
	guests   map[int]*guest
	windows  map[int]*window // by pid
	closings int             // windows that are being closed
	opened   uint64          // windows
	own      time.Duration   // CPU time of this process for windows
	retired  totals          // totals of processes that have ended
	notes    []string
	closed   bool
}

var _ interface {
	calls.Engine
	calls.NamedFolder
	calls.SampleHolder
	calls.GuestFinder
} = (*Engine)(nil)

var errClosed = errors.New("the usdt engine is closed")

// Try starts the engine, or returns why it cannot work. Processes are sampled once Look has found
// them.
func Try(opt Options) (_ *Engine, err error) {
	if opt.Pool == nil {
		opt.Pool = proc.NewPool(proc.PoolOptions{})
	}
	if opt.CountRead == nil {
		opt.CountRead = func(error) {}
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		opt: opt, log: opt.Log, uprobes: attach.NewUprobes(), names: newNames(), began: time.Now(),
		kept: make(chan struct{}), listened: make(chan struct{}),
		images: map[fileID]*image{}, refused: map[fileID]error{}, guests: map[int]*guest{}, windows: map[int]*window{},
	}
	e.interrupt.Store(int64(usualInterrupt))
	if e.usdt, err = opt.Objects.LoadUSDT(); err != nil {
		return nil, err
	}
	if e.notices, err = ring.NewReader(e.usdt.UsdtNotices); err != nil {
		return nil, errors.Join(fmt.Errorf("read the attach requests of the usdt programs: %w", err), e.usdt.Close())
	}
	if err := e.Tune(opt.Rate); err != nil {
		return nil, errors.Join(err, e.notices.Close(), e.usdt.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	go e.keep(ctx)
	go e.listen()
	return e, nil
}

// Name implements calls.Engine.
func (e *Engine) Name() string { return calls.USDT }

// Tune implements calls.Engine. Zero samples or zero ticks pause it.
func (e *Engine) Tune(r profile.Rate) error {
	if r.Hz < 0 || r.Stride < 0 || r.Samples < 0 {
		return fmt.Errorf("rate %v is negative", r)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	if err := e.usdt.UsdtRates.Put(uint32(0), bpf.USDTRate{Stride: uint32(max(1, r.Stride)),
		Samples: uint32(r.Samples)}); err != nil {
		return fmt.Errorf("set burst: %w", err)
	}
	if r.Hz != e.rate.Hz {
		if err := e.tick(r.Hz); err != nil {
			return err
		}
	}
	e.rate = r
	e.weigher.tune(r)
	return nil
}

// tick replaces the ticks; mu is held.
func (e *Engine) tick(hz int) error {
	var next *attach.Ticks
	if hz > 0 {
		t, err := attach.NewTicks(e.usdt.UsdtTick, hz)
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

// Fold weighs a named call of the event stream: once its burst is over, add gets its edges, and how
// many calls each stands for. So add gets calls made before c, of the same process. Fold returns
// false for a call of another engine or with a nameless callee. Calls must come in the order of the
// stream.
func (e *Engine) Fold(c *bpf.NamedCall, add calls.Add) bool {
	edge, ok := e.Edge(c)
	if c.Engine == bpf.EngineUSDT {
		e.weigher.take(c, edge, ok, add)
	}
	return ok
}

// Flush hands out the calls of unfinished bursts, of all processes: at the end of a window of a
// recording.
func (e *Engine) Flush(add calls.Add) { e.weigher.flush(add) }

// Held returns the number of calls that wait for the end of their burst.
func (e *Engine) Held() (n int) {
	e.weigher.mu.Lock()
	defer e.weigher.mu.Unlock()
	for _, b := range e.weigher.held {
		n += b.Len()
	}
	return n
}

// Edge returns the edge of a named call that this engine sampled; false for other engines' calls,
// and for callees without a name.
func (e *Engine) Edge(c *bpf.NamedCall) (profile.Edge, bool) {
	if c.Engine != bpf.EngineUSDT {
		return profile.Edge{}, false
	}
	return e.names.edge(c)
}

// Notes are what a reader of the profiles must know, one sentence each: why a process has no calls.
func (e *Engine) Notes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.notes)
}

// note stores a sentence; mu is held. The number of notes is limited.
func (e *Engine) note(format string, args ...any) {
	const enough = 32
	text := fmt.Sprintf(format, args...)
	if len(e.notes) < enough && !slices.Contains(e.notes, text) {
		e.notes = append(e.notes, text)
		e.log.Warn(text)
	}
}

// Close implements calls.Engine. All probes are gone when it returns.
func (e *Engine) Close() error {
	e.closing.Do(func() {
		e.mu.Lock()
		e.closed = true
		var errs []error
		if e.ticks != nil {
			errs = append(errs, e.ticks.Close())
		}
		e.mu.Unlock()
		e.stop()
		<-e.kept
		errs = append(errs, e.notices.Close())
		<-e.listened
		e.serving.Wait() // none lasts longer than windowLimit
		e.looking.Lock()
		defer e.looking.Unlock()
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, g := range e.guests {
			e.forget(g)
		}
		for _, im := range e.images {
			errs = append(errs, im.file.Close())
		}
		e.ended = errors.Join(append(errs, e.usdt.Close())...)
	})
	return e.ended
}
