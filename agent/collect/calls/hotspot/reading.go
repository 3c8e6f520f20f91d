package hotspot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A reading is the values of methods' counters at one time.
type reading struct {
	at      time.Duration // CLOCK_MONOTONIC
	counted map[uint64]methodCounts
	// whole says that all methods of the VM were read: those missing from counted had not been
	// called until then.
	whole bool
}

// methodCounts are how often a method had been invoked, and how often it had made its calls.
type methodCounts struct {
	at          time.Duration // CLOCK_MONOTONIC, when they were read
	invocations uint64        // including those before its calls were counted and those in code that counts no calls
	before      uint64        // those alone
	counting    bool          // its calls were counted
	calls       []siteCount   // by ascending bytecode index; calls that had not been made may be missing
	unknown     bool          // the VM counts, but the counter could not be read
}

// A siteCount is how often the call at a bytecode index had been made.
type siteCount struct {
	bci   int
	count uint64
}

// countAt returns how often the call at a bytecode index had been made.
func (c *methodCounts) countAt(bci int) uint64 {
	i, ok := slices.BinarySearchFunc(c.calls, bci, func(s siteCount, bci int) int { return cmp.Compare(s.bci, bci) })
	if !ok {
		return 0
	}
	return c.calls[i].count
}

// readAll reads the counters of all methods. Methods that have never been invoked are left out.
func readAll(vm vmruntime.MethodCounter) (r reading, err error) {
	methods, err := vm.Methods()
	if err != nil {
		return r, err
	}
	counts, took, err := vm.Counts(methods)
	if err != nil {
		return r, err
	}
	r = reading{at: proc.Monotonic() - took/2, counted: make(map[uint64]methodCounts, len(counts)), whole: true}
	for i := range counts {
		m := &counts[i]
		c := methodCounts{at: r.at, invocations: m.Invocations + m.Before, before: m.Before, counting: m.Data != 0,
			unknown: m.Unreadable}
		for _, s := range m.Sites {
			n := s.Others
			for _, row := range s.Rows {
				n += row.Count
			}
			c.calls = append(c.calls, siteCount{s.BCI, n})
		}
		if c.invocations > 0 || len(c.calls) > 0 || c.unknown {
			r.counted[m.Method] = c
		}
	}
	return r, nil
}

// shortestReading is the minimum time between two readings that give rates.
const shortestReading = 100 * time.Millisecond

// rates fills in how often per second the VM counted an entry, and each call, since the reading;
// nothing if unknown. length is that of the window that ends about now.
func (r *reading) rates(p *vmruntime.MethodProfile, now, length time.Duration, to *estimate.Profile) {
	before, ok := r.counted[p.Method]
	if !ok {
		if !r.whole {
			return
		}
		before.at = r.at
	}
	invocations := p.Invocations + p.Before
	if before.unknown || invocations < before.invocations || now-before.at < shortestReading {
		return
	}
	seconds := (now - before.at).Seconds()
	to.Entered, to.EntersKnown = float64(invocations-before.invocations)/seconds, true
	if before.invocations > 0 && !before.counting || !p.Counted {
		return // it may have run for some time when its calls began to be counted
	}
	for i := range p.Calls {
		if p.Calls[i].Count < before.countAt(p.Calls[i].BCI) {
			return
		}
	}
	to.Known = true
	to.Covered = min(seconds/length.Seconds(), 1)
	if all := invocations - before.invocations; all > 0 && p.Before > before.before {
		// No calls were counted in the other invocations.
		to.Covered *= float64(all-min(p.Before-before.before, all)) / float64(all)
	}
	for i := range p.Calls {
		to.Sites[i].Rate = float64(p.Calls[i].Count-before.countAt(p.Calls[i].BCI)) / seconds
	}
}

// replace makes the reading the one of these profiles.
func (r *reading) replace(profiles map[uint64]*vmruntime.MethodProfile, now time.Duration) {
	*r = reading{at: now, counted: make(map[uint64]methodCounts, len(profiles))}
	for m, p := range profiles {
		c := methodCounts{at: now, invocations: p.Invocations + p.Before, before: p.Before, counting: p.Counted}
		for i := range p.Calls {
			if n := p.Calls[i].Count; n > 0 {
				c.calls = append(c.calls, siteCount{p.Calls[i].BCI, n})
			}
		}
		r.counted[m] = c
	}
}

// merge adds the counts of another reading for methods that r lacks. Copies of r do not change.
func (r *reading) merge(later *reading) {
	switch {
	case r.counted == nil:
		*r = *later
		return
	case r.whole: // methods that are missing had not been called
		return
	}
	merged := maps.Clone(r.counted)
	for m, c := range later.counted {
		if _, known := merged[m]; !known && len(merged) < maxCountsKept {
			merged[m] = c
		}
	}
	r.counted = merged
}

// Bounds of first readings, which are made when a JVM is first sampled.
const (
	// young is the maximum age of a JVM whose counters are all read when it is first sampled. A
	// young JVM soon calls methods that it has not called yet, and has few classes: listing methods
	// takes some 10 ms per thousand classes.
	young            = time.Minute
	baselineDeadline = 3 * time.Second // time limit for all new JVMs together
	maxCountsKept    = 4 * maxProfiled // methods whose first counts a window keeps, some 150 bytes each
)

// readBaselines reads the counters of all methods of JVMs that have just started, as the baseline for later
// counts. It runs at the first sample: earlier counts are in no estimate.
func (e *Engine) readBaselines(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, baselineDeadline)
	defer cancel()
	for _, p := range e.withoutBaseline() {
		if ctx.Err() != nil {
			return // next time
		}
		e.baselined[p] = struct{}{}
		if p.Identity().Age() <= young {
			e.Resolver.Attempt(guest.StageListen, p.Process, func() { e.readFirst(ctx, p) })
		}
	}
}

// withoutBaseline returns the JVMs that were sampled, but whose counters have not been read.
func (e *Engine) withoutBaseline() (list []*fold.Process) {
	maps.DeleteFunc(e.baselined, func(p *fold.Process, _ struct{}) bool { return p.Exited.Load() })
	e.Owner.Do(func(s *fold.State) {
		for _, p := range s.Table {
			if _, known := e.baselined[p]; !known && len(p.Top.Edges) > 0 && !p.Exited.Load() &&
				p.HasCalls() {
				list = append(list, p)
			}
		}
	})
	return list
}

// readFirst reads all counters of p, for the open windows. Otherwise only the counters of sampled
// methods are read.
func (e *Engine) readFirst(ctx context.Context, p *fold.Process) {
	began := proc.Monotonic()
	err := e.Resolver.WithVM(ctx, p.Process, func(g *guest.VM) error {
		vm, err := guest.As[vmruntime.MethodCounter](g)
		if err != nil {
			return err
		}
		r, err := readAll(vm)
		if err == nil && len(r.counted) > maxCountsKept {
			err = fmt.Errorf("%d methods have been called, more than %d", len(r.counted), maxCountsKept)
		}
		if err == nil {
			e.mark(p, &r)
		}
		return err
	})
	if err != nil {
		e.Log.Debug("cannot read all counters of a JVM", "pid", p.PID, "err", err)
		return
	}
	e.Log.Debug("read all counters of a JVM", "pid", p.PID, "took", proc.Monotonic()-began)
}

// mark stores p's counters in open windows that do not have them yet.
func (e *Engine) mark(p *fold.Process, r *reading) {
	e.Owner.Do(func(s *fold.State) {
		for _, w := range s.Windows() {
			if w.Processes[p] == nil {
				continue
			}
			calls := w.CallSet(p)
			own, _ := calls.Counters.(*reading)
			if own == nil {
				own = &reading{}
				calls.Counters = own
			}
			own.merge(r)
		}
	})
}
