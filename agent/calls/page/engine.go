// Package page is the call engine for guest VMs that cooperate (contrib/guest/vmprof.h). Agent and guest share one
// page of memory. At a tick the kernel side arms the thread that it interrupted, in its slot of the page; the thread
// then counts its own calls and runs over a probe at every STRIDE-th, SAMPLES times (Arnold & Grove, CGO 2005,
// section 4). A thread that is not armed pays a load, a compare and a branch per call.
//
//	e, err := page.New(page.Options{Objects: objects})
//	defer e.Close()
//	err = e.Tune(calls.Rate{Hz: 100, Burst: calls.Burst{Stride: 127, Samples: 64}})
//	edge, ok := e.Edge(call)            // for every call of the event stream whose engine is bpf.EnginePage
//
// Guests connect to a socket, say what code is which method, and get their page. Everything they say is hostile: it is
// bounded, it names nothing but their own calls, and what they write into the page can waste nobody's time but theirs.
// An agent that ends, however it ends, breaks the connection; its guests then put an empty page in the place of the
// shared one, so that none stays armed.
package page

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options configure an Engine. Only Objects is needed.
type Options struct {
	Objects *bpf.Objects       // the agent's; they are closed after the engine
	Socket  string             // path; "" means DefaultSocket
	Wanted  func(pid int) bool // whether a process is profiled; nil: all are. Called from several goroutines
	Proc    proc.Root          // where procfs is
	Log     *slog.Logger       // nil means none
}

// upkeep is how often CPUs that came or went are looked for.
const upkeep = 10 * time.Second

// An Engine samples calls of cooperating guests from its making until it is closed. Its methods may be called from
// several goroutines.
type Engine struct {
	opt     Options
	log     *slog.Logger
	objects bpf.BurstObjects
	inner   *ebpf.MapSpec // of a page
	probes  *probes
	table   *table
	tally   *tally
	bytes   atomic.Int64 // that guests registered
	hit     hitCost
	weigher weigher
	used    cpuTime
	tick    time.Duration // of an interruption, without the program

	listener *listener
	ctx      context.Context // ends with the engine
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu    sync.Mutex // of what follows
	ticks *attach.Ticks
	hz    int
}

var _ interface {
	calls.Engine
	calls.Folder
	calls.Holder
	calls.Unweigher
	calls.Connector
} = (*Engine)(nil)

// New listens for guests. Nothing is sampled before Tune.
func New(opt Options) (_ *Engine, err error) {
	e := &Engine{opt: opt, log: opt.Log, table: newTable(), tally: newTally()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if opt.Socket == "" {
		e.opt.Socket = DefaultSocket
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	spec, err := bpf.LoadBurst()
	if err != nil {
		return nil, fmt.Errorf("read burst object: %w", err)
	}
	e.inner = spec.Maps["pages"].InnerMap
	if err := opt.Objects.LoadBeside(spec, &e.objects); err != nil {
		return nil, fmt.Errorf("load burst programs: %w", err)
	}
	defer func() {
		if err != nil {
			e.objects.Close()
		}
	}()
	e.tick = measureTick(e.objects.BurstArm)
	e.probes = newProbes(&e.objects, opt.Proc, proc.NewPool(proc.PoolOptions{FirstDeadline: firstSearch}))
	if e.listener, err = listen(e.opt.Socket); err != nil {
		return nil, err
	}
	e.running.Go(e.accept)
	e.running.Go(e.follow)
	return e, nil
}

// Name implements calls.Engine.
func (e *Engine) Name() string { return calls.Page }

// Notes implements calls.Engine. There are none.
func (e *Engine) Notes() []string { return nil }

// follow looks after ticks on CPUs that come and go.
func (e *Engine) follow() {
	for e.sleep(upkeep) {
		e.mu.Lock()
		if e.ticks != nil {
			if err := e.ticks.Refresh(); err != nil {
				e.log.Warn("cannot follow CPUs that went online or offline", "err", err)
			}
		}
		e.mu.Unlock()
	}
}

// sleep is false if the engine is being closed.
func (e *Engine) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-e.ctx.Done():
		return false
	}
}

// Close disarms all guests, ends their connections and takes the engine out of the kernel.
func (e *Engine) Close() error {
	e.stop()
	err := errors.Join(e.setTicks(0), e.listener.Close())
	e.running.Wait()
	return errors.Join(err, e.objects.Close())
}
