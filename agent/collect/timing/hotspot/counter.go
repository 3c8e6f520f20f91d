package hotspot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const (
	longSlice    = 500 * time.Millisecond // how long breakpoints of a counter stand at most
	shortSlice   = 100 * time.Millisecond // how long they stand at least, unless Take ends them
	firstSlice   = time.Millisecond       // what setting breakpoints and removing them costs at least
	mostHits     = breakpoint.MaxHits
	manyHits     = 200                   // hits of slices together that show how often a method is called
	mostSlowed   = 0.05                  // part of the threads' time that breakpoints may take while they stand
	countIdle    = 20 * time.Millisecond // time between slices while nothing can be counted
	takePatience = time.Second           // how long Take waits for slices to end
	// A process counts as if it used so much of a CPU at least: otherwise the budget of one that
	// mostly waits would buy no slice for minutes.
	leastUse = 0.1
	// mostElsewhere is how much of the CPU time of slices may be that of threads without
	// breakpoints before a note says so. Switching to threads and from them also counts as such: a
	// quarter where threads sleep between short calls.
	mostElsewhere = 0.4
)

// A Counter counts how often the code of a method is entered in some JVMs, by breakpoints that
// stand all the time; where that would cost more than the share of CPU time, in slices of the time.
// Of processes with more than breakpoint.MaxThreads threads, each slice watches as many at
// random, and stands for the others. What is called so often that breakpoints would slow it down is
// not counted. Inlined, interpreted and OSR entries are not counted, nor those of threads that
// began within a slice: Notes says which there are.
type Counter struct {
	opt   Options
	timer *timer
	jvms  members[*counted]
}

// A Count is how often a method was entered in one process.
type Count struct {
	Calls    float64       // estimated from what was observed
	Error    float64       // standard error of Calls; 0 if all of the time was observed
	Time     time.Duration // time since the last Take
	Observed time.Duration // part of Time that was observed
}

// Profile is the count as calls of the method by unknown callers.
func (n Count) Profile(method Method) *profile.Calls {
	edge := profile.Edge{
		Caller: symbol.Intern(symbol.Frame{Function: "[unknown caller]", Kind: symbol.KindMarker}),
		Site:   profile.Site{Offset: -1},
		Callee: symbol.Intern(symbol.Frame{Function: method.Function, Kind: symbol.KindJIT}),
	}
	calls := &profile.Calls{Engine: stored.EngineCount, Basis: profile.Counted, Graph: new(profile.Graph)}
	calls.Graph.Add(edge, n.Calls)
	const normal95, widest = 1.96, 100
	if n.Error > 0 && n.Calls > 0 { // a factor, as estimates of calls have: a sum would go below 0
		factor := min(math.Exp(normal95*n.Error/n.Calls), widest)
		calls.Basis = profile.Estimated
		calls.Intervals = map[profile.Edge]profile.Interval{edge: {Low: n.Calls / factor, High: n.Calls * factor}}
	}
	return calls
}

// counted is a process whose method is counted.
type counted struct {
	ending
	counter *Counter
	process *process
	bucket  budget.Bucket
	earned  time.Duration // CPU time that the budget is a share of
	used    time.Duration // CPU time of the process at the last slice
	setting time.Duration // what the last slice cost beside its hits
	begun   time.Duration // CLOCK_MONOTONIC: of the last slice
	threads threadList
	found   bool // code of the method was found
	rested  bool // there was no budget since the last slice

	// By ending.mu.
	tally     tally
	pace      pace
	slicing   context.CancelFunc // ends the open slice
	ran       time.Duration      // CPU time of threads with breakpoints while these stood
	elsewhere time.Duration      // CPU time of the other threads in the same time
	hits      float64
	instead   error // what to count instead if nothing was: an InlinedError, or nil
	notes     []string
}

// threadList lists the threads of a process that may be watched.
type threadList func() ([]int, error)

// OpenCounter attaches to the JVMs and begins to count. Options and errors are those of Open. Close
// ends it.
func OpenCounter(ctx context.Context, opt Options) (*Counter, error) {
	opt, err := opt.checked()
	if err != nil {
		return nil, err
	}
	c := &Counter{opt: opt}
	err = c.jvms.attach(ctx, &opt, func(p *process) *counted {
		now := proc.Monotonic()
		g := &counted{process: p, counter: c, tally: tally{from: now, taken: now}, begun: now, setting: firstSlice}
		g.bucket.Fill(firstSlice, firstSlice) // a method that is called too often shows at once
		g.threads = func() ([]int, error) { return opt.Root.Threads(p.PID) }
		return g
	})
	if err != nil {
		return nil, err
	}
	if c.timer, err = newTimer(ctx, opt.Root, opt.Watcher); err != nil {
		return nil, errors.Join(err, c.jvms.close())
	}
	c.jvms.start()
	return c, nil
}

// Close removes the breakpoints.
func (c *Counter) Close() error {
	err := c.jvms.close()
	return errors.Join(err, c.timer.Close())
}

// Take returns what was counted since the last Take, or since the beginning, by pid. Slices that
// are open end now. Where nobody looked since, there is nothing: the next Take has the calls of
// that time.
func (c *Counter) Take() map[int]Count { return c.take(false) }

// Finish is the last Take: calls of a time in which nobody looked are estimated from the last
// slice. It fails for processes that were never looked at, for those whose calls entered only code
// of other methods, and for those of which Err is not nil.
func (c *Counter) Finish() (map[int]Count, error) {
	counts := c.take(true)
	if err := c.Err(); err != nil {
		return counts, err
	}
	for _, g := range c.jvms.list {
		g.mu.Lock()
		looks, notes, hits, instead := g.tally.looks, g.notes, g.hits, g.instead
		g.mu.Unlock()
		if hits == 0 && instead != nil {
			return counts, fmt.Errorf("count calls in process %d: %w", g.process.PID, instead)
		}
		if looks == 0 && len(notes) == 0 {
			return counts, fmt.Errorf("count calls in process %d: breakpoints were never set; record for longer, or "+
				"raise --budget", g.process.PID)
		}
	}
	return counts, nil
}

func (c *Counter) take(last bool) map[int]Count {
	now := proc.Monotonic()
	for _, g := range c.jvms.list {
		g.mu.Lock()
		if g.slicing != nil {
			g.slicing()
		}
		g.mu.Unlock()
	}
	counts := map[int]Count{}
	for _, g := range c.jvms.list {
		counts[g.process.PID] = g.take(now, last)
	}
	return counts
}

// take waits until what was observed before then is in the tally.
func (g *counted) take(then time.Duration, last bool) Count {
	for deadline := time.Now().Add(takePatience); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		if g.slicing == nil || g.tally.from >= then || g.failed != nil || time.Now().After(deadline) {
			defer g.mu.Unlock()
			return g.tally.take(then, last)
		}
		g.mu.Unlock()
	}
}

// Notes are sentences about what is not counted.
func (c *Counter) Notes() (notes []string) {
	for _, g := range c.jvms.list {
		g.mu.Lock()
		notes = append(notes, g.notes...)
		if all := g.ran + g.elsewhere; all > 0 && float64(g.elsewhere) > mostElsewhere*float64(all) {
			notes = append(notes, fmt.Sprintf("process %d: while calls were counted, %.0f%% of its CPU time was in "+
				"threads that had just started: their calls are not counted",
				g.process.PID, 100*g.elsewhere.Seconds()/all.Seconds()))
		}
		g.mu.Unlock()
	}
	return notes
}

// Err is why the calls of a process are not counted any more, so that its counts are of no use; nil
// if all are, or it has ended.
func (c *Counter) Err() error { return c.jvms.err("count calls") }

func (g *counted) pid() int     { return g.process.PID }
func (g *counted) close() error { return g.process.Close() }

// run counts until ctx is done or the process has ended.
func (g *counted) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := g.slice(ctx)
		switch {
		case err == nil:
			continue
		// The next look stands for this time as well.
		case watch.Refused(err), errors.Is(err, errResting), errors.Is(err, watch.ErrChanged):
		case ctx.Err() == nil:
			return err
		}
		if err := g.counter.opt.Root.Check(g.process.Identity); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(countIdle):
		}
	}
	return ctx.Err()
}

// errResting says that there is nothing to count now, or no budget for it.
var errResting = errors.New("nothing to count")

// A pace is how often calls are, in slices that have shortSlice or manyHits together: one that Take
// ended early may have had a few calls by chance.
type pace struct {
	hits float64
	time time.Duration // time of threads with breakpoints
}

// add takes over a slice, and returns the calls a second of such time so far. slowed reports
// whether breakpoints take too much of it.
func (p *pace) add(hits float64, length, hit time.Duration) (rate float64, slowed bool) {
	p.hits, p.time = p.hits+hits, p.time+length
	rate = p.hits / p.time.Seconds()
	if p.time < shortSlice && p.hits < manyHits {
		return rate, false
	}
	slowed = p.hits*float64(hit) > mostSlowed*float64(p.time)
	*p = pace{}
	return rate, slowed
}

// slice has breakpoints stand on the current code for some time.
func (g *counted) slice(ctx context.Context) error {
	if err := g.search(); err != nil {
		return err
	}
	list, err := g.process.current()
	if err != nil {
		return err
	}
	if g.found = g.found || len(list) > 0; !g.found {
		if err := g.process.everywhere(); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		g.mu.Lock()
		g.tally.look(0, proc.Monotonic(), 0, 0) // without code there are no entries, but the time passes
		g.mu.Unlock()
		return errResting
	}
	hit := g.counter.timer.observer.HitTime()
	length, most := sliceLength(g.tally.rate*hit.Seconds(), g.setting)
	if g.tally.looks == 0 {
		length = shortSlice // it may be called often
	}
	g.earn(2 * most)
	if !g.bucket.Take(most) {
		g.rested = true
		return errResting
	}
	if g.rested {
		// The budget comes with the program's bursts of work: a slice at once would begin with one.
		g.rested = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(longSlice)):
		}
	}
	threads, err := g.threads()
	if err != nil {
		return err
	}
	all := len(threads)
	if all > breakpoint.MaxThreads {
		rand.Shuffle(all, func(i, j int) { threads[i], threads[j] = threads[j], threads[i] })
		threads = threads[:breakpoint.MaxThreads]
	}
	slice, cancel := context.WithCancel(ctx)
	defer cancel()
	g.mu.Lock()
	g.slicing = cancel
	g.mu.Unlock()
	kernel := bpf.TimedWatch{Mode: uint32(bpf.TimeCallers), Until: math.MaxUint64}
	request := watch.Request{
		Identity: g.process.Identity, Addresses: entries(list), Threads: threads, Duration: length, Hits: mostHits,
	}
	begun := proc.Monotonic()
	before, _ := proc.CPUTime(g.process.PID)
	seen, err := g.counter.timer.observer.Watch(slice, request, &kernel)
	after, _ := proc.CPUTime(g.process.PID)
	ended := proc.Monotonic()
	if slice.Err() != nil && errors.Is(err, slice.Err()) {
		err = nil // it was meant to end
	}
	g.bucket.Settle(most, seen.Cost)
	if err == nil && slices.ContainsFunc(list, func(c vmruntime.Compilation) bool { return !g.process.still(&c) }) {
		err = watch.ErrChanged // nobody knows until when calls entered this code
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slicing = nil
	if err != nil || seen.Armed <= 0 {
		return err
	}
	hits := float64(kernel.Head().Runs)
	g.setting = max(seen.Cost-time.Duration(hits*float64(hit)), firstSlice)
	g.hits += hits
	if rate, slowed := g.pace.add(hits, max(seen.Ran, seen.Length), hit); slowed || hits >= mostHits {
		return fmt.Errorf("%s is called too often to be counted, at least %.0f times a second: breakpoints would "+
			"slow it down; give the number of units with --per=N",
			g.process.method, rate)
	}
	if seen.Ran > 0 && all == seen.Threads {
		g.ran += seen.Ran
		all := float64(after-before) * seen.Armed.Seconds() / (ended - begun).Seconds() // while they stood
		g.elsewhere += time.Duration(all) - seen.Ran
	}
	// Threads without breakpoints are as time without.
	observed := time.Duration(float64(seen.Armed) * float64(seen.Threads) / float64(max(all-seen.Gone, seen.Threads)))
	g.tally.look(hits, ended, observed, hits*hit.Seconds()/seen.Armed.Seconds())
	return nil
}

// sliceLength is how long a slice is, and what it may cost. slowed is the part of the threads' time
// that hits take, and setting what it costs to set the breakpoints and to remove them: a slice has
// hits for as much, within its bounds.
func sliceLength(slowed float64, setting time.Duration) (length, cost time.Duration) {
	length = longSlice
	if slowed > 0 {
		length = max(shortSlice, time.Duration(min(float64(longSlice), float64(setting)/slowed)))
	}
	return length, setting + time.Duration(slowed*float64(length))
}

// earn fills the bucket, which keeps no more than most.
func (g *counted) earn(most time.Duration) {
	now := proc.Monotonic()
	used, _ := proc.CPUTime(g.process.PID)
	if g.used > 0 {
		g.earned += max(used-g.used, time.Duration(leastUse*float64(now-g.begun)))
	}
	g.used, g.begun = used, now
	g.bucket.FillShare(g.counter.opt.Share, g.earned, most)
}

// entries are the addresses of some code.
func entries(list []vmruntime.Compilation) (addresses []uint64) {
	for _, c := range list[:min(len(list), watch.MaxAddresses)] {
		addresses = append(addresses, c.VerifiedEntry)
	}
	return addresses
}

// search looks for code of the method from time to time.
func (g *counted) search() error {
	searched, notes, _, err := g.process.searchDue("counted")
	if !searched {
		return nil
	}
	if list, err := g.process.current(); err == nil && len(list) > watch.MaxAddresses {
		notes = append(notes, fmt.Sprintf("process %d: there are %d copies of %s, of several class loaders; calls of "+
			"%d of them are not counted", g.process.PID, len(list), g.process.method, len(list)-watch.MaxAddresses))
	}
	instead := g.process.everywhere()
	g.mu.Lock()
	g.notes, g.instead = notes, instead
	g.mu.Unlock()
	return err
}
