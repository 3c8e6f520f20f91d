package counters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// countersEngine is the engine of edges that the JVM's own code counted.
const countersEngine = "exact counters"

// The pause between readings while a recording goes on. They guard against the loss of all counts
// when the JVM ends.
const (
	readingPause = time.Second
	readingShare = 10 // a pause lasts at least this many times as long as the reading before it
)

// readingDeadline is how long the end of a recording waits for the last reading.
const readingDeadline = 30 * time.Second

// A Source takes the difference of a JVM's own counters at both ends of the window.
type Source struct {
	exact.Counted
	cancel context.CancelFunc // ends the periodic readings
	done   chan struct{}

	// The reading goroutine owns these; after it has ended, End owns them.
	book        *Book
	first, last *Reading
	middles     exact.Middles[*Reading]
	notes       []string
	symbol      func(vmruntime.Frame) symbol.Symbol // returns the symbol of a method
}

// New returns a source that has read nothing yet.
func New(services *source.Services) *Source {
	return &Source{Counted: exact.NewCounted(services), book: &Book{}}
}

// Attached starts to count the calls of a process whose VM was just attached. It runs on a worker.
func (x *Source) Attached(t *guest.Process, g *guest.VM, _ *proc.Mapping) {
	p := x.Take(t)
	if p == nil {
		return
	}
	first, err := x.begin(g)
	if err != nil {
		x.Fail(p, err)
		return
	}
	var notes []string // read from the VM, which may take long: so not while holding the State
	if vm, err := guest.As[VM](g); err == nil {
		if note := WidthNote(vm); note != "" {
			notes = append(notes, note)
		}
	}
	symbol := g.MethodSymbols()
	ctx, cancel := context.WithCancel(context.Background())
	x.Owner.Do(func(*fold.State) {
		x.first, x.last, x.cancel, x.done = first, first, cancel, make(chan struct{})
		x.symbol, x.notes = symbol, append(x.notes, notes...)
		go x.readOn(ctx, p)
	})
	x.Log.Debug("calls are counted", "pid", p.PID, "methods", first.Counted(), "reading", first.Took)
}

func (x *Source) begin(g *guest.VM) (*Reading, error) {
	vm, err := guest.As[VM](g)
	if err != nil {
		return nil, err
	}
	if err := Check(vm); err != nil {
		return nil, err
	}
	return x.reading(g)
}

// reading reads the counters. Class unloading comes in bursts, so that a second attempt nearly
// always succeeds.
func (x *Source) reading(g *guest.VM) (r *Reading, err error) {
	vm, err := guest.As[VM](g)
	if err != nil {
		return nil, err
	}
	epoch := func() uint32 { return x.Resolver.ClassEpoch(g) }
	for range 3 {
		if r, err = Read(vm, epoch); !errors.Is(err, vmruntime.ErrStale) {
			return r, err
		}
	}
	return r, err
}

// readOn reads the counters periodically until ctx ends, and looks up callees.
func (x *Source) readOn(ctx context.Context, p *fold.Process) {
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
			x.Log.Debug("counters are not read", "pid", p.PID, "err", err)
			continue
		}
		pause = max(readingPause, readingShare*took)
		x.Log.Debug("counters were read", "pid", p.PID, "took", took)
		if after := x.last.Since(x.first).Length; after >= milestone {
			x.middles.Keep(x.last, after)
			milestone = 2*after + readingPause
		}
	}
}

// read replaces the last reading. It returns the time for the reading and all look-ups.
func (x *Source) read(ctx context.Context, p *fold.Process) (took time.Duration, err error) {
	first, known := x.first, x.book // a worker that is still busy after the end of ctx must not read x
	type outcome struct {
		*Reading
		*Book
		took time.Duration
	}
	made := make(chan outcome, 1)
	err = x.Resolver.WithVM(ctx, p.Process, func(g *guest.VM) error {
		began := time.Now()
		r, err := x.reading(g)
		if err != nil {
			return err
		}
		vm, err := guest.As[VM](g)
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

// End implements source.Ender.
func (x *Source) End(ctx context.Context, begin func() *profile.Profile) (*profile.Profile, error) {
	var p *fold.Process
	var cancel context.CancelFunc
	x.Owner.Do(func(s *fold.State) {
		p, cancel = x.Counts(s), x.cancel
		x.cancel = nil
	})
	if cancel == nil {
		return nil, exact.ErrNothingCounted
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
	out := begin()
	of := fold.ProfileOf(p.Process)
	graph := x.book.Graph(d, maxCounted, x.symbol, guest.Marker)
	of.Calls = []*profile.Calls{{Engine: countersEngine, Basis: profile.Counted, Graph: graph}}
	out.Processes = []*profile.Process{of}
	out.Comments = append(out.Comments, x.book.Notes(d)...)
	out.Comments = append(out.Comments, x.notes...)
	if n := graph.Overflow(); n > 0 {
		out.Comments = append(out.Comments, fmt.Sprintf("%.0f calls are missing in the call graph, because it is full.",
			n))
	}
	if err != nil {
		out.Comments = append(out.Comments,
			fmt.Sprintf("the counters of process %d could not be read at the end (%v): its calls cover only the "+
				"first %v",
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

// maxCounted bounds the edges of a counted call graph: the same as exact.Recorder has room for.
const maxCounted = 1 << 18

// Close ends the readings if they have begun.
func (x *Source) Close() error {
	if x.cancel != nil {
		x.cancel()
		<-x.done
	}
	return nil
}
