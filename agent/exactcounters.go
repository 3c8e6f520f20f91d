package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/counters"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// exactCounterEdges is the engine of edges that the JVM's own code counted.
const exactCounterEdges = "exact counters"

// How often the counters are read while a recording goes on, in case the JVM ends: what it counted is gone then.
const (
	readingPause = time.Second
	readingShare = 10 // a pause is that many times as long as a reading took
)

// readingDeadline is how long the end of a recording waits for the last reading.
const readingDeadline = 30 * time.Second

// exactCounters takes the difference of a JVM's own counters at both ends of the window.
type exactCounters struct {
	countedJVM
	cancel context.CancelFunc // of what reads on
	done   chan struct{}

	// Of the goroutine that reads on, then of who ends it.
	book        *counters.Book
	first, last *counters.Reading
	middles     exact.Middles[*counters.Reading]
	notes       []string
	symbol      func(vmruntime.Frame) symbolize.Symbol // of a method
}

func newExactCounters(a *Agent) *exactCounters {
	return &exactCounters{countedJVM: newCountedJVM(a), book: &counters.Book{}}
}

// Attached implements follower.
func (x *exactCounters) Attached(t *target.Process, g *target.VM, _ *proc.Mapping) {
	p := x.agent.processOfTarget(t)
	if p == nil || !x.take(p) {
		return
	}
	first, err := x.begin(g)
	if err != nil {
		x.fail(p, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := x.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	x.first, x.last, x.cancel, x.done = first, first, cancel, make(chan struct{})
	x.symbol = g.MethodSymbols()
	if vm, err := target.As[counters.VM](g); err == nil {
		if note := counters.WidthNote(vm); note != "" {
			x.notes = append(x.notes, note)
		}
	}
	go x.readOn(ctx, p)
	a.log.Debug("calls are counted", "pid", p.PID, "methods", first.Counted(), "reading", first.Took)
}

func (x *exactCounters) begin(g *target.VM) (*counters.Reading, error) {
	vm, err := target.As[counters.VM](g)
	if err != nil {
		return nil, err
	}
	if err := counters.Check(vm); err != nil {
		return nil, err
	}
	return x.reading(g)
}

// reading reads the counters. Class unloading comes in bursts, so a second attempt nearly always succeeds.
func (x *exactCounters) reading(g *target.VM) (r *counters.Reading, err error) {
	vm, err := target.As[counters.VM](g)
	if err != nil {
		return nil, err
	}
	epoch := func() uint32 { return x.agent.resolver.ClassEpoch(g) }
	for range 3 {
		if r, err = counters.Read(vm, epoch); !errors.Is(err, vmruntime.ErrStale) {
			return r, err
		}
	}
	return r, err
}

// readOn reads the counters from time to time until ctx ends, and looks up what was called.
func (x *exactCounters) readOn(ctx context.Context, p *fold.Process) {
	defer close(x.done)
	milestone := readingPause
	for pause := readingPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		took, err := x.read(ctx, p)
		if err != nil {
			x.agent.log.Debug("counters are not read", "pid", p.PID, "err", err)
			continue
		}
		pause = max(readingPause, readingShare*took)
		x.agent.log.Debug("counters were read", "pid", p.PID, "took", took)
		if after := x.last.Since(x.first).Length; after >= milestone {
			x.middles.Keep(x.last, after)
			milestone = 2*after + readingPause
		}
	}
}

// read replaces the last reading, which took so long with all that is looked up.
func (x *exactCounters) read(ctx context.Context, p *fold.Process) (took time.Duration, err error) {
	first, known := x.first, x.book // what a worker still does when ctx has ended must not read x
	type outcome struct {
		*counters.Reading
		*counters.Book
		took time.Duration
	}
	made := make(chan outcome, 1)
	err = x.agent.resolver.WithVM(ctx, p.Process, func(g *target.VM) error {
		began := time.Now()
		r, err := x.reading(g)
		if err != nil {
			return err
		}
		vm, err := target.As[counters.VM](g)
		if err != nil {
			return err
		}
		book, err := known.Learn(vm, r.Epoch, r.Since(first))
		made <- outcome{r, book, time.Since(began)}
		return err
	})
	if err != nil {
		return 0, err
	}
	out := <-made
	x.last, x.book = out.Reading, out.Book
	return out.took, nil
}

// end implements exactEngine.
func (x *exactCounters) end(ctx context.Context, w *Window) (*profile.Profile, error) {
	a := x.agent
	a.mu.Lock()
	p, cancel := x.process, x.cancel
	x.cancel = nil
	a.mu.Unlock()
	if cancel == nil {
		return nil, errNothingCounted
	}
	cancel()
	<-x.done
	ctx, stop := context.WithTimeout(ctx, readingDeadline)
	defer stop()
	_, err := x.read(ctx, p)
	d := x.last.Since(x.first)
	if x.last == x.first {
		return nil, fmt.Errorf("read the counters of process %d for a second time: %w", p.PID, err)
	}
	out := a.exactProfile(w)
	of := fold.ProfileOf(p.Process)
	graph := x.book.Graph(d, maxCounted, x.symbol, target.Marker)
	of.Calls = []*profile.Calls{{Engine: exactCounterEdges, Basis: profile.Counted, Graph: graph}}
	out.Processes = []*profile.Process{of}
	out.Comments = append(out.Comments, x.book.Notes(d)...)
	out.Comments = append(out.Comments, x.notes...)
	if n := graph.Overflow(); n > 0 {
		out.Comments = append(out.Comments, fmt.Sprintf("%.0f calls are missing in the call graph, because it is full.", n))
	}
	if err != nil {
		out.Comments = append(out.Comments, fmt.Sprintf("the counters of process %d could not be read at the end (%v): its calls cover only the first %v",
			p.PID, err, d.Length.Round(time.Second/10)))
	}
	if middle := x.middles.Middle(d.Length); middle != nil {
		note := exact.PhaseNote(x.book.Callees(middle.Since(x.first)), x.book.Callees(x.last.Since(middle)))
		if note != "" {
			out.Comments = append(out.Comments, note)
		}
	}
	return out, nil
}

// maxCounted bounds the edges of a call graph that is counted: as many as exact.Recorder has room for.
const maxCounted = 1 << 18

func (x *exactCounters) close() error {
	if x.cancel != nil {
		x.cancel()
		<-x.done
	}
	return nil
}
