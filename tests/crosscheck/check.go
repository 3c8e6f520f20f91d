package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A result is a number of a profile beside what the kernel or the JVM says.
type result struct {
	program, what, source string
	unit                  string
	truth, recorded       float64
	within                float64 // half of the interval that the profile states, or that sampling allows; +Inf: unknown
	tolerance             float64 // of the truth itself
	compared              bool    // what the source says is no truth: the number is for comparison
}

// agrees says that the truth is within the profile's own interval, as far as it is known.
func (r result) agrees() bool {
	return r.compared || math.Abs(r.recorded-r.truth) <= r.within+r.tolerance
}

func (r result) verdict() string {
	if r.compared {
		return "-"
	}
	return report.Verdict(r.agrees())
}

func (r result) String() string {
	return fmt.Sprintf("%s: %s: %s %s, recorded %s ± %s (truth ± %s): %s", r.program, r.what, r.number(r.truth), r.unit, r.number(r.recorded),
		r.number(r.within), r.number(r.tolerance), r.verdict())
}

func (r result) number(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "unknown"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func tabulate(results []result) report.Table {
	table := report.Table{Header: []string{"program", "what", "by", "it says", "recorded", "interval", ""}}
	for _, r := range results {
		table.Add(r.program, r.what, r.source, r.number(r.truth)+" "+r.unit, r.number(r.recorded)+" "+r.unit, "±"+r.number(r.within), r.verdict())
	}
	return table
}

// runTimeout bounds a program's run.
const runTimeout = 3 * time.Minute

// kinds are what is recorded: all kinds at once.
const kinds = "cpu,alloc,lock,safepoint,page-faults"

// check records a program's run, with extra arguments for the agent, and compares.
func check(ctx context.Context, recorder profiler.Agent, jdk jvm.JDK, p program, extra ...string) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "vmprof-crosscheck-"+strings.ToLower(p.name)+"-")
	if err != nil {
		return nil, fmt.Errorf("create a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	ready, err := p.prepare(ctx, jdk, dir)
	if err != nil {
		return nil, err
	}
	t, recording, err := record(ctx, recorder, ready.command(jdk, logFlags(dir, ready.settings())...), extra, p.found)
	if err != nil {
		return nil, err
	}
	if err := t.readLogs(ctx, jdk, dir); err != nil {
		return nil, err
	}
	if t.beginning, err = ready.beginning(ctx, jdk); err != nil {
		return nil, err
	}
	return compare(p, t, recording)
}

// record runs the program from beginning to end beside the recorder, which has extra arguments. With anyStatus the program may end with any.
func record(ctx context.Context, recorder profiler.Agent, line, extra []string, anyStatus bool) (t truth, r *profiler.Recording, err error) {
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
	run, err := recorder.Start(ctx, profiler.Options{PID: guest.Process.Pid, Extra: append([]string{"-e", kinds}, extra...)})
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
	// cpuOutside is what the kernel counts of a process besides: its start, and its end after its last sample.
	cpuOutside = 50 * time.Millisecond
	// unusedBuffers is the share of the heap's growth that is ends of threads' buffers (TLABWasteTargetPercent, with
	// its fill at collections): the collector counts them as used, and no object is in them.
	unusedBuffers = 0.02
	// firstMoments is how long after the JVM's first stop another one may still be missed by probes that are being attached.
	firstMoments = time.Second
	// waitsTolerance is the share of a wait that the VM spins before JFR's event begins, and that passes behind it, as a rule.
	waitsTolerance = 0.05
	// aroundWait is what a wait takes besides between the probes and JFR's event.
	aroundWait = 50 * time.Microsecond
	// normal95 is half of the 95 % interval of a normal distribution, in standard deviations.
	normal95 = 1.96
)

// compare holds a recording against the truth.
func compare(p program, t truth, r *profiler.Recording) (list []result, err error) {
	cpu, err := cpuTime(r.Kinds["cpu"])
	if err != nil {
		return nil, err
	}
	list = append(list, result{program: p.name, what: "CPU time", source: "the kernel (rusage)", unit: "s", truth: t.cpu.Seconds(),
		recorded: cpu.sum, within: normal95 * cpu.deviation, tolerance: cpuOutside.Seconds()})
	total := func(kind agent.EventKind, what, source, unit string, scale, truth, tolerance float64) error {
		p0 := r.Kinds[kind.String()]
		if p0 == nil {
			return fmt.Errorf("nothing was recorded of %v\n%s", kind, r.Output)
		}
		sum, err := sink.TotalOf(p0, kind)
		if err != nil {
			return err
		}
		list = append(list, result{program: p.name, what: what, source: source, unit: unit, truth: truth / scale, recorded: sum.Sum / scale,
			within: sum.Within / scale, tolerance: tolerance / scale})
		return nil
	}
	allocated := t.heap.uncertainty + unusedBuffers*t.heap.bytes
	if missed(r.Kinds[agent.Allocations.String()]) {
		allocated += t.beginning.bytes
	}
	if err := total(agent.Allocations, "allocated", "the GC log", "MB", 1e6, t.heap.bytes, allocated); err != nil {
		return nil, err
	}
	stopped := events.Stopped(t.safepoints)
	allowed := 0.01*float64(stopped) + float64(len(t.safepoints))*20e3
	if missed(r.Kinds[agent.Pauses.String()]) && len(t.safepoints) > 0 {
		allowed += float64(events.Stopped(events.Between(t.safepoints, time.Time{}, t.safepoints[0].Ended.Add(firstMoments))))
	}
	if err := total(agent.Pauses, "stopped", "the safepoint log", "ms", 1e6, float64(stopped), allowed); err != nil {
		return nil, err
	}
	if err := total(agent.Faults, "page faults", "the kernel (rusage)", "", 1, float64(t.faults), 0); err != nil {
		return nil, err
	}
	waits, err := compareWaits(t, r)
	if err != nil {
		return nil, err
	}
	waits.program = p.name
	list = append(list, waits)
	own := methods(r.Kinds["cpu"])
	list = append(list, result{program: p.name, what: "methods, overlap", source: "JFR", unit: "%", truth: alike(own, t.methods),
		recorded: own.Overlap(t.methods), compared: true, within: math.Inf(1)})
	return list, nil
}

// missed says that the profile states that it does not have a process's beginning.
func missed(p *profile.Profile) bool { return missedFirst(p) > 0 }

var missedPattern = regexp.MustCompile(`nothing was observed in its first ([0-9a-z.]+)`)

// missedFirst is how much of a process's beginning the profile says that it does not have.
func missedFirst(p *profile.Profile) time.Duration {
	if p == nil {
		return 0
	}
	for _, line := range p.Comments {
		if m := missedPattern.FindStringSubmatch(line); m != nil {
			first, _ := time.ParseDuration(m[1])
			return max(first, 1)
		}
	}
	return 0
}

func millis(d time.Duration) float64 { return float64(d) / 1e6 }

// A sampledTime is CPU time by samples.
type sampledTime struct{ sum, deviation float64 } // seconds

// cpuTime adds up a CPU profile. Samples are a period apart in each thread's own time, and each thread's phase is random: of a
// thread the sum is off by less than a period.
func cpuTime(p *profile.Profile) (s sampledTime, err error) {
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

// compareWaits holds waits for monitors against JFR's. Of waits that were drawn the profile has no interval without those for other locks:
// then both figures just stand beside each other.
func compareWaits(t truth, recording *profiler.Recording) (r result, err error) {
	p := recording.Kinds[agent.Locks.String()]
	recorded, err := monitorDelay(p)
	if err != nil {
		return r, err
	}
	all, err := sink.TotalOf(p, agent.Locks)
	if err != nil {
		return r, err
	}
	r = result{what: "waits for monitors", source: "JFR", unit: "ms", truth: millis(t.monitors.sum(t.monitors.ever())), recorded: recorded,
		compared: true, within: math.Inf(1)}
	if all.Within > 0 || all.Sum == 0 {
		return r, nil
	}
	r.compared, r.within, r.tolerance = false, 0, waitsTolerance*r.truth+millis(time.Duration(len(t.monitors))*aroundWait)
	var first time.Duration // of which a kind that has events says that it was not observed
	for _, p := range recording.Kinds {
		first = max(first, missedFirst(p))
	}
	if first > 0 {
		r.tolerance += millis(t.monitors.sum(t.began.Add(first + firstMoments)))
	}
	return r, nil
}

// monitorDelay is how long threads waited for monitors, in milliseconds, as JFR has it: its events begin when the VM has spun in vain.
func monitorDelay(p *profile.Profile) (sum float64, err error) {
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

// alike is the overlap that two samples of one distribution would have, as many as there are on each side: of the distribution that both
// sides are together. There are more methods than samples of most, so it is far below 100.
func alike(a, b events.Weights) float64 {
	var methods []string
	var sums []float64
	sum := 0.
	for _, w := range []events.Weights{a, b} { // a method of both is two entries of one name
		for _, method := range slices.Sorted(maps.Keys(w)) {
			sum += w[method] / w.Total()
			methods, sums = append(methods, method), append(sums, sum)
		}
	}
	if len(sums) == 0 {
		return 0
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) events.Weights {
		w := events.Weights{}
		for range n {
			at, _ := slices.BinarySearch(sums, sum*rng.Float64())
			w[methods[min(at, len(methods)-1)]]++
		}
		return w
	}
	const draws = 20
	mean := 0.
	for range draws {
		mean += draw(int(a.Total())).Overlap(draw(int(b.Total()))) / draws
	}
	return mean
}

// methods are the samples in Java code by innermost method, as JFR has them: in stubs, by the method that called them.
func methods(p *profile.Profile) events.Weights {
	w := events.Weights{}
	for _, s := range stacks.Of(p) {
		for _, f := range s.Frames {
			if strings.HasPrefix(f.Mapping, "[stub") {
				continue
			}
			if f.Java() {
				w[f.Function] += float64(s.Count)
			}
			break
		}
	}
	return w
}
