package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A result is a number of a profile beside what the kernel or the JVM says.
type result struct {
	program, what, source string
	unit                  string
	truth, recorded       float64
	// within is half of the interval that the profile states, or that sampling allows; +Inf:
	// unknown.
	within    float64
	tolerance float64 // tolerance of the truth itself
	compared  bool    // what the source says is no truth: the number is for comparison
}

// agrees says that the truth is within the profile's own interval, as far as it is known.
func (r result) agrees() bool { return r.agreesAt(1) }

// agreesAt is agrees with an interval so many times as wide. A true 95 % interval misses one truth
// in twenty, a twice as wide one one in ten thousand.
func (r result) agreesAt(times float64) bool {
	return r.compared || math.Abs(r.recorded-r.truth) <= times*r.within+r.tolerance
}

func (r result) verdict() string {
	if r.compared {
		return "-"
	}
	return report.Verdict(r.agrees())
}

func (r result) String() string {
	return fmt.Sprintf("%s: %s: %s %s, recorded %s ± %s (truth ± %s): %s", r.program, r.what, r.number(r.truth), r.unit,
		r.number(r.recorded),
		r.number(r.within), r.number(r.tolerance), r.verdict())
}

func (r result) number(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "unknown"
	case v >= 999.5: // would be rounded to 1e+03
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func tabulate(results []result) report.Table {
	table := report.Table{Header: []string{"program", "what", "by", "it says", "recorded", "interval", ""}}
	for _, r := range results {
		table.Add(r.program, r.what, r.source, r.number(r.truth)+" "+r.unit, r.number(r.recorded)+" "+r.unit, "±"+
			r.number(r.within), r.verdict())
	}
	return table
}

// runTimeout bounds a program's run.
const runTimeout = 3 * time.Minute

// kinds are what is recorded: all kinds at once.
const kinds = "cpu,alloc,lock,safepoint,page-faults"

// check records a program's run, with extra arguments for the agent, and compares.
func check(ctx context.Context, recorder profiler.Agent, jdk jvm.JDK, p program, extra ...string) ([]result, error) {
	dir, err := os.MkdirTemp("", "vmprof-crosscheck-"+strings.ToLower(p.name)+"-")
	if err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	ready, err := p.prepare(ctx, jdk, dir)
	if err != nil {
		return nil, err
	}
	t, recording, err := observe(ctx, recorder, jdk, ready, dir, nil, extra...)
	if err != nil {
		return nil, err
	}
	if t.beginning, err = ready.beginning(ctx, jdk); err != nil {
		return nil, err
	}
	return compare(p, t, recording)
}

// observe runs a program beside the recorder, with its logs in dir, and reads them. The flags are
// for the JVM, after all others, extra arguments for the recorder.
func observe(
	ctx context.Context, recorder profiler.Agent, jdk jvm.JDK, p prepared, dir string, flags []string, extra ...string,
) (t truth, r *profiler.Recording, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	line := p.command(jdk, append(logFlags(dir, p.settings()), flags...)...)
	if t, r, err = record(ctx, recorder, line, extra, p.found); err != nil {
		return t, nil, err
	}
	return t, r, t.readLogs(ctx, jdk, dir)
}

// record runs the program from beginning to end beside the recorder, which has extra arguments.
// With anyStatus the program may end with any.
func record(
	ctx context.Context, recorder profiler.Agent, line, extra []string, anyStatus bool,
) (t truth, r *profiler.Recording, err error) {
	guest := exec.CommandContext(ctx, line[0], line[1:]...)
	var output bytes.Buffer
	guest.Stdout, guest.Stderr = &output, &output
	begin, err := guest.StdinPipe()
	if err != nil {
		return t, nil, err
	}
	if err := guest.Start(); err != nil {
		return t, nil, fmt.Errorf("start the program: %w", err)
	}
	run, err := recorder.Start(ctx, profiler.Options{PID: guest.Process.Pid,
		Extra: append([]string{"-e", kinds}, extra...)})
	if err == nil {
		err = run.WaitSampling()
	}
	t.began = time.Now()
	_, started := io.WriteString(begin, "go\n")
	err = cmp.Or(err, started)
	if err != nil {
		cancelled := guest.Process.Kill()
		return t, nil, errors.Join(err, cancelled, guest.Wait())
	}
	ended := guest.Wait()
	recording, err := run.Finish()
	if ended != nil && !(anyStatus && guest.ProcessState.Exited()) {
		return t, nil, fmt.Errorf("the program: %w\n%s", ended, output.String())
	}
	if err != nil {
		return t, nil, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return t, nil, err
	}
	usage := guest.ProcessState.SysUsage().(*syscall.Rusage)
	t.cpu = guest.ProcessState.UserTime() + guest.ProcessState.SystemTime()
	t.faults = int64(usage.Minflt) + int64(usage.Majflt)
	return t, recording, nil
}

const (
	// cpuOutside is what the kernel counts of a process besides: its start, and its end after its
	// last sample.
	cpuOutside = 50 * time.Millisecond
	// unusedBuffers is the share of the heap's growth that is ends of threads' buffers
	// (TLABWasteTargetPercent, with its fill at collections): the collector counts them as used,
	// and no object is in them.
	unusedBuffers = 0.02
	// firstMoments is how long after the JVM's first stop another one may still be missed by probes
	// that are being attached.
	firstMoments = time.Second
	// waitsTolerance is the share of a wait that the VM spins before JFR's event begins, and that
	// passes behind it, as a rule.
	waitsTolerance = 0.05
	// aroundWait is what a wait takes besides between the probes and JFR's event.
	aroundWait = 50 * time.Microsecond
	// leastWaited is how long waits for monitors must be together, in milliseconds, to be judged:
	// less is a wait or two, which may be at the edge of what was observed.
	leastWaited = 20
	// normal95 is half of the 95 % interval of a normal distribution, in standard deviations.
	normal95 = 1.96
)

// compare holds a recording against the truth.
func compare(p program, t truth, r *profiler.Recording) (list []result, err error) {
	cpu, err := cpuTime(r.Kinds["cpu"])
	if err != nil {
		return nil, err
	}
	list = append(list, result{program: p.name, what: "CPU time", source: "the kernel (rusage)", unit: "s",
		truth:    t.cpu.Seconds(),
		recorded: cpu.sum, within: normal95 * cpu.deviation, tolerance: cpuOutside.Seconds()})
	total := func(kind profile.EventKind, what, source, unit string, scale, truth float64,
		tolerance func(eventviews.Total) float64) error {
		p0 := r.Kinds[kind.String()]
		if p0 == nil {
			return fmt.Errorf("nothing was recorded of %v\n%s", kind, r.Output)
		}
		sum, err := eventviews.TotalOf(p0, kind)
		if err != nil {
			return err
		}
		list = append(list, result{program: p.name, what: what, source: source, unit: unit, truth: truth / scale,
			recorded: sum.Sum / scale,
			within:   sum.Within / scale, tolerance: tolerance(sum) / scale})
		return nil
	}
	heap := func(recorded eventviews.Total) float64 {
		allowed := t.heap.uncertainty + unusedBuffers*t.heap.bytes
		if recorded.Missed > 0 {
			allowed += t.beginning.bytes
		}
		return allowed
	}
	if err := total(profile.Allocations, "allocated", "the GC log", "MB", 1e6, t.heap.bytes, heap); err != nil {
		return nil, err
	}
	stopped := events.Stopped(t.safepoints)
	stops := func(recorded eventviews.Total) float64 {
		allowed := 0.01*float64(stopped) + float64(len(t.safepoints))*20e3
		if recorded.Missed > 0 && len(t.safepoints) > 0 {
			allowed += float64(events.Stopped(events.Between(t.safepoints, time.Time{},
				t.safepoints[0].Ended.Add(firstMoments))))
		}
		return allowed
	}
	if err := total(profile.Pauses, "stopped", "the safepoint log", "ms", 1e6, float64(stopped), stops); err != nil {
		return nil, err
	}
	none := func(eventviews.Total) float64 { return 0 }
	if err := total(profile.Faults, "page faults", "the kernel (rusage)", "", 1, float64(t.faults), none); err != nil {
		return nil, err
	}
	waits, err := compareWaits(t, r)
	if err != nil {
		return nil, err
	}
	waits.program = p.name
	list = append(list, waits)
	own := sampledBy(r.Kinds["cpu"])
	overlap := func(what string, a, b events.Weights) {
		list = append(list, result{program: p.name, what: what, source: "JFR", unit: "%", truth: alike(a, b),
			recorded: a.Overlap(b), compared: true, within: math.Inf(1)})
	}
	overlap("compiled methods, overlap", own.compiled, t.sampled.compiled)
	overlap("innermost methods, overlap", own.innermost, t.sampled.innermost)
	list = append(list, result{program: p.name, what: "innermost methods not named", source: "JFR", unit: "%",
		recorded: own.unnamed(),
		compared: true, within: math.Inf(1)})
	return list, nil
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// A sampledTime is CPU time by samples.
type sampledTime struct{ sum, deviation float64 } // seconds

// cpuTime adds up a CPU profile. Samples are a period apart in each thread's own time, and each
// thread's phase is random: of a thread the sum is off by less than a period.
func cpuTime(p *pprof.Profile) (s sampledTime, err error) {
	column := -1
	for i, t := range p.SampleType {
		if t.Unit == "nanoseconds" {
			column = i
		}
	}
	if column < 0 {
		return s, errors.New("the CPU profile has no values in nanoseconds")
	}
	for _, sample := range p.Sample {
		s.sum += float64(sample.Value[column]) / 1e9
	}
	// A clock ticks by CPU, not by thread: a tick finds the program or not.
	s.deviation = math.Sqrt(s.sum * float64(p.Period) / 1e9)
	return s, nil
}

// compareWaits holds waits for monitors against JFR's. Of waits that were drawn the profile has no
// interval without those for other locks: then both figures just stand beside each other.
func compareWaits(t truth, recording *profiler.Recording) (r result, err error) {
	p := recording.Kinds[profile.Locks.String()]
	recorded, err := monitorDelay(p)
	if err != nil {
		return r, err
	}
	all, err := eventviews.TotalOf(p, profile.Locks)
	if err != nil {
		return r, err
	}
	r = result{what: "waits for monitors", source: "JFR", unit: "ms", truth: millis(t.monitors.total()),
		recorded: recorded,
		compared: true, within: math.Inf(1)}
	if all.Within > 0 || all.Sum == 0 || r.truth < leastWaited {
		return r, nil
	}
	r.compared, r.within, r.tolerance = false, 0, waitsTolerance*r.truth+
		millis(time.Duration(len(t.monitors))*aroundWait)
	first := all.Missed // or what another kind says that was not observed: this one may have no events
	for _, kind := range []profile.EventKind{profile.Allocations, profile.Pauses, profile.Faults} {
		if p := recording.Kinds[kind.String()]; p != nil {
			total, err := eventviews.TotalOf(p, kind)
			if err != nil {
				return r, err
			}
			first = max(first, total.Missed)
		}
	}
	if first > 0 {
		r.tolerance += millis(t.monitors.sum(t.began.Add(first + firstMoments)))
	}
	return r, nil
}

// monitorDelay is how long threads waited for monitors, in milliseconds, as JFR has it: its events
// begin when the VM has spun in vain.
func monitorDelay(p *pprof.Profile) (sum float64, err error) {
	rows, err := events.Read(p, "delay")
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if row.Kind == "block" && !strings.HasPrefix(row.Class, "jdk.jfr.") { // JFR leaves itself out
			sum += row.Values[0] / 1e6
		}
	}
	return sum, nil
}
