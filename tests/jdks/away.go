package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// Features of waits, in the order of their table.
const (
	offCPU    = "off-CPU and wall time"
	causes    = "causes of waits"
	wholeWait = "whole stacks of waits"
	carried   = "waits of virtual threads"
)

var waitFeatures = []string{offCPU, causes, wholeWait, carried}

const (
	// awayTolerance is how far the time of a way to wait may be off, as a share, besides the error
	// of sampling.
	awayTolerance = 0.05
	// awaySigmas is how many standard deviations sampling may add: short waits are drawn.
	awaySigmas = 4
	// rightCause is the share of a way's time that must have its cause, at least.
	rightCause = 0.95
	// shared is what all ways share, such as a wait for a collection, as a share of the program's
	// time.
	shared = 0.01
	// awayMillis is how long each thread waits, again and again, in its own way; awayShort is for
	// CI.
	awayMillis, awayShort = 2500, 1000
	// firstVirtual is the first JDK with virtual threads.
	firstVirtual = 21
	// firstUnbiased is the first JDK that does not give monitors to threads in advance. Taking one
	// back may stop all threads, of which the program knows nothing.
	firstUnbiased = 15
	// unmounted is the cause of a wait for which a virtual thread gives up its carrier.
	unmounted = "unmounted"
)

// A way is what was recorded of one way to wait, next to what the program says.
type way struct {
	Method, Cause string
	Truth         float64 // ns
	OffCPU, Wall  float64 // ns, of both recordings
	Sampled       float64 // standard deviation of OffCPU, ns
	Right         float64 // time with the cause, as a share of the time without delays
	Wrong         float64 // ns with other causes, without delays
	InVM          float64 // ns with causes of waits in the VM
	Whole         float64 // time with whole stacks, as a share
	Said          bool    // the profile says that Java callers may be missing
	Others        string  // the other causes and where stacks end, with their times
}

// wayOf adds up the rows of one way to wait. The root is the method where whole stacks end; cut are
// the rows of its thread whose stacks do not: as much of these as is missing may be of this way. A
// thread that starts waits before it has any Java method.
func wayOf(away events.OffCPU, offCPU, wall, cut []events.Row, root string) way {
	w := way{Method: away.Method, Cause: away.Cause, Truth: float64(away.Sum)}
	f := away.Find(offCPU, 0)
	w.OffCPU, w.Wrong, w.InVM = f.Time, f.Wrong(), f.VM+f.VMCall
	whole, slow, others := 0.0, 0.0, map[string]float64{}
	for _, r := range f.Rows {
		ns := r.Values[0]
		if r.Cause != away.Cause && r.Cause != events.Also[away.Cause] && !r.Delayed() {
			others[r.Cause] += ns
		}
		end := outermost(r.Stack)
		switch {
		case r.Truncated() == "" && r.Has(root):
			whole += ns
			continue
		case end == cutByTime:
			slow += ns
		}
		others["ends at "+end] += ns
	}
	w.Sampled = sampled(f.Rows)
	lost := min(events.Sum(cut, 0), max(w.Truth-w.OffCPU-awaySigmas*w.Sampled, 0))
	for _, r := range cut {
		others["no callers of "+outermost(r.Stack)] += r.Values[0]
	}
	w.Right = share(f.Right, f.Right+w.Wrong+w.InVM)
	w.Whole = share(whole, w.OffCPU+lost-min(slow, mostSlow*w.OffCPU))
	w.Wall = events.Sum(events.Where(wall, func(r events.Row) bool {
		return r.Has(away.Method) &&
			r.Cause != "running"
	}), 0)
	w.Others = listed(others)
	return w
}

// A walk that takes too long ends there. On a virtual machine that is stopped meanwhile a few do,
// which says nothing of the JDK.
const (
	cutByTime = "[… cut: time]"
	mostSlow  = 0.1 // share of the waits
)

// sampled is the standard deviation of the time of rows: those of waits that stand for more than
// themselves were drawn, the others are exact.
func sampled(rows []events.Row) float64 {
	variance := 0.0
	for _, r := range rows {
		if ns, waits := r.Values[0], r.Values[1]; waits > float64(r.Count) {
			variance += ns * ns / float64(r.Count)
		}
	}
	return math.Sqrt(variance)
}

// outermost is where a stack ends, or why.
func outermost(s stacks.Stack) string {
	if len(s.Frames) == 0 {
		return "nothing"
	}
	return s.Frames[len(s.Frames)-1].Function
}

// share is a part of something, 0 of nothing.
func share(part, of float64) float64 {
	if of == 0 {
		return 0
	}
	return part / of
}

// listed lists times by name, the longest first.
func listed(times map[string]float64) string {
	var names []string
	for name := range times {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(times[b], times[a]) })
	const most = 3
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %v", name, time.Duration(times[name]).Round(time.Millisecond))
	}
	return strings.Join(names[:min(len(names), most)], ", ")
}

// error is how far the time is off, as a share of the truth: that of the recording that is further
// off.
func (w way) error() float64 {
	off, wall := w.OffCPU/w.Truth-1, w.Wall/w.Truth-1
	if math.Abs(wall) > math.Abs(off) {
		return wall
	}
	return off
}

// occupies says that a thread of the kernel waits.
func (w way) occupies() bool { return w.Cause != unmounted }

func (w way) name() string { return simple(w.Method) }

func (w way) timeOK() bool {
	return math.Abs(w.error())*w.Truth <= awayTolerance*w.Truth+awaySigmas*w.Sampled
}

func (w way) causeOK() bool {
	return w.Right >= rightCause || w.Wrong+w.InVM <= shared*w.Truth
}

func (w way) wholeOK() bool { return w.Whole >= nearlyAll }

// timeSaid, causeSaid and wholeSaid report whether the profile says what is missing.
func (w way) timeSaid() bool { return w.Said && w.error() < 0 }

func (w way) causeSaid() bool {
	right := w.Right * share(w.Wrong+w.InVM, 1-w.Right)
	return right >= rightCause*(right+w.Wrong)
}

func (w way) wholeSaid() bool { return w.Said }

// gone is how much of a wait without a thread may be recorded: the carrier may wait for the VM
// before it has given up the thread.
const gone = 0.05

// recorded is how much of a wait without a thread is recorded, as a share. Carriers wait for a CPU
// with the thread on them.
func (w way) recorded() float64 { return (w.Wrong + w.InVM) / w.Truth }

// judgeWays judges all ways of threads of the kernel to wait: a feature is as right as it is for
// the worst way.
func judgeWays(ways []way) []verdict {
	verdicts := []verdict{
		worst(offCPU, ways, way.timeOK, way.timeSaid, func(w way) float64 { return math.Abs(w.error()) },
			func(w way) string {
				return fmt.Sprintf("%s %+.1f %%", w.name(), 100*w.error())
			}),
		worst(causes, ways, way.causeOK, way.causeSaid, func(w way) float64 { return 1 - w.Right }, func(w way) string {
			return fmt.Sprintf("%s %.1f %% right", w.name(), 100*w.Right)
		}),
		worst(wholeWait, ways, way.wholeOK, way.wholeSaid, func(w way) float64 { return 1 - w.Whole },
			func(w way) string {
				return fmt.Sprintf("%s %.1f %% whole", w.name(), 100*w.Whole)
			}),
	}
	return verdicts
}

// worst judges a feature by the ways that are not right, or else by the one that is furthest off.
// It is missing, not wrong, if the profile says so of each of them.
func worst(feature string, ways []way, ok, said func(way) bool, off func(way) float64, found func(way) string) verdict {
	if len(ways) == 0 {
		return verdict{feature, wrong, "nothing"}
	}
	v := verdict{feature: feature, found: found(slices.MaxFunc(ways,
		func(a, b way) int { return cmp.Compare(off(a), off(b)) }))}
	var bad []string
	for _, w := range ways {
		if !ok(w) {
			v.state = max(v.state, silent)
			if !said(w) {
				v.state = wrong
			}
			bad = append(bad, strings.TrimSuffix(found(w)+" ("+w.Others+")", " ()"))
		}
	}
	if len(bad) > 0 {
		v.found = strings.Join(bad, "; ")
	}
	return v
}

// judgeCarried judges the waits of virtual threads: those with a thread of the kernel like any
// others, and nothing of the others.
func judgeCarried(ways []way) verdict {
	ok := func(w way) bool {
		if w.occupies() {
			return w.timeOK() && w.causeOK() && w.wholeOK()
		}
		return w.recorded() <= gone
	}
	said := func(w way) bool {
		return w.occupies() && (w.timeOK() || w.timeSaid()) && (w.causeOK() || w.causeSaid()) &&
			(w.wholeOK() || w.wholeSaid())
	}
	off := func(w way) float64 {
		if w.occupies() {
			return max(math.Abs(w.error()), 1-w.Right, 1-w.Whole)
		}
		return w.recorded()
	}
	return worst(carried, ways, ok, said, off, func(w way) string {
		if w.occupies() {
			return fmt.Sprintf("%s %+.1f %%, %.1f %% right, %.1f %% whole", w.name(), 100*w.error(), 100*w.Right,
				100*w.Whole)
		}
		return fmt.Sprintf("%s %.1f %% recorded of a wait without a thread", w.name(), 100*w.recorded())
	})
}

// waitVerdicts judges all ways of a cell.
func waitVerdicts(ways []way) (verdicts []verdict) {
	var plain, virtual []way
	for _, w := range ways {
		if strings.HasPrefix(w.Method, "guest."+events.Away.Class+".") {
			plain = append(plain, w)
		} else {
			virtual = append(virtual, w)
		}
	}
	verdicts = judgeWays(plain)
	if len(virtual) > 0 {
		verdicts = append(verdicts, judgeCarried(virtual))
	}
	return verdicts
}

// away records threads that wait in ten ways, and virtual threads that do so in eight.
func (m meter) away(ctx context.Context, c cell, command jvm.Command) (ways []way, err error) {
	plain, _, err := m.recordWays(ctx, command, events.Away, entry)
	if err != nil || c.jdk.Version < firstVirtual {
		return plain, err
	}
	virtual, rows, err := m.recordWays(ctx, command, events.Carried, carrier)
	if err != nil {
		return plain, err
	}
	return slices.Concat(plain, virtual, idleHelpers(rows)), nil
}

// noCallers is in the note of JVMs whose threads the agent knows only after a while.
const noCallers = "Samples of a thread in native code have no Java callers until"

// carrier is the outermost Java method of the carriers of virtual threads.
const carrier = "java.util.concurrent.ForkJoinWorkerThread.run"

// helpers are what carriers, and the threads that wake virtual threads, do when they have nothing
// to do, with their outermost Java methods. Which there are depends on the JDK.
var helpers = map[string]string{
	"java.util.concurrent.ForkJoinPool.runWorker":       carrier,
	"java.util.concurrent.DelayScheduler.loop":          "java.util.concurrent.DelayScheduler.run",
	"java.util.concurrent.ThreadPoolExecutor.runWorker": entry,
	"sun.nio.ch.Poller.pollLoop":                        entry,
}

// idleHelpers are the waits of helpers without a virtual thread, as ways whose time is right.
func idleHelpers(rows []events.Row) (ways []way) {
	for _, method := range slices.Sorted(maps.Keys(helpers)) {
		idle := events.Where(rows, func(r events.Row) bool {
			return r.Has(method) &&
				!r.Has("java.lang.VirtualThread.run")
		})
		if sum := events.Sum(idle, 0); sum > 0 {
			ways = append(ways, wayOf(events.OffCPU{Method: method, Cause: "idle", Sum: time.Duration(sum)}, idle, idle,
				nil, helpers[method]))
		}
	}
	return ways
}

// recordWays records a program whose threads wait, and returns the rows of off-CPU time as well.
func (m meter) recordWays(
	ctx context.Context, c jvm.Command, p events.Program, root string,
) (ways []way, off []events.Row, err error) {
	amount := awayMillis
	if m.short {
		amount = awayShort
	}
	c.Flags = append(slices.Clone(c.Flags), "-Djava.io.tmpdir="+m.dir) // on a disk
	if c.JDK.Version < firstUnbiased {
		c.Flags = append(c.Flags, "-XX:-UseBiasedLocking")
	}
	// With this budget waits of the program's length are recorded each, on a busy machine as well.
	s, err := m.record(ctx, c, p, 1, amount, "-e", "offcpu,wall", "--budget=50%")
	if err != nil {
		return nil, nil, err
	}
	if off, err = events.Read(s.recording.Kinds["offcpu"], "offcpu", "waits"); err != nil {
		return nil, nil, err
	}
	wall, err := events.Read(s.recording.Kinds["wall"], "wall")
	if err != nil {
		return nil, nil, err
	}
	said := slices.ContainsFunc(s.recording.Kinds["offcpu"].Comments,
		func(note string) bool { return strings.Contains(note, noCallers) })
	for i, away := range s.truth.Away {
		cut := events.Where(off, func(r events.Row) bool {
			return r.Thread == fmt.Sprint(events.Thread, "-", i) && !r.Has(root) && !r.Has(away.Method)
		})
		w := wayOf(away, off, wall, cut, root)
		w.Said = said
		ways = append(ways, w)
	}
	return ways, off, nil
}
