package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jfr"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

const (
	// waitMillis is how long each thread waits, again and again, in its own way.
	waitMillis = 2500
	// awayTolerance is the permitted error of off-CPU time besides that of sampling.
	awayTolerance = 0.05
	// rightCause is the least share of a method's off-CPU time that has the right cause, without
	// the time on run queues and in safepoints.
	rightCause = 0.9
)

// planWaits records threads that wait in ways of their own, next to JFR and perf sched.
func planWaits(jdks []jvm.JDK) plan {
	return harness.Trials[meter, waitTrial, waitResult]{
		All: func(short bool) (trials []waitTrial) {
			if short {
				return nil
			}
			for _, jdk := range jdks {
				trials = append(trials, waitTrial{jdk})
			}
			return trials
		},
		Run: harness.OneByOne(meter.recordWaits),
		Tables: func(results []waitResult) []harness.Table {
			return []harness.Table{{Marker: "events-waits", Table: waitTable(results)}}
		},
		OK: func(results []waitResult) bool {
			return !slices.ContainsFunc(results, func(r waitResult) bool {
				return slices.ContainsFunc(r.ways, func(w wayResult) bool { return !w.ok() })
			})
		},
	}.Plan
}

// A waitTrial is a JDK whose threads wait. The short form has none: it runs beside other tests, and
// what JFR does in the threads that it records takes more of a short time. The tests of the agent
// judge the same program without JFR.
type waitTrial struct{ jdk jvm.JDK }

func (t waitTrial) String() string { return "events, waits, " + t.jdk.String() }

// A waitResult is what all say of one run.
type waitResult struct {
	waitTrial
	ways []wayResult
}

// A wayResult is what all say of one way to wait. Of what somebody does not record it is NaN.
type wayResult struct {
	events.OffCPU
	offCPU, wall float64 // ns
	sampled      float64 // standard deviation of offCPU, ns
	right        float64 // share of offCPU with the right cause, 0 to 1
	jfr          float64 // ns
	perf         float64 // off-CPU time of the threads by perf sched, divided by ours of the same threads
	async        float64 // by what the program said in another run, which only that one recorded
}

func (w wayResult) ok() bool {
	allowed := awayTolerance*float64(w.Sum) + sigmas*w.sampled
	return math.Abs(w.offCPU-float64(w.Sum)) <= allowed && math.Abs(w.wall-float64(w.Sum)) <= allowed &&
		w.right >= rightCause
}

// waitEvents are the events of JFR with the time of waits. Its other events have none: it does not
// record pipes, selectors and run queues.
var waitEvents = []string{jfr.JavaMonitorEnter, jfr.JavaMonitorWait, jfr.ThreadPark, jfr.ThreadSleep, jfr.SocketRead,
	jfr.FileForce, jfr.FileWrite}

func (m meter) recordWaits(ctx context.Context, t waitTrial) (r waitResult, err error) {
	r.waitTrial = t
	guest, err := events.Start(ctx, t.jdk, events.Away)
	if err != nil {
		return r, err
	}
	defer guest.Close()
	if _, err := guest.Run(1, 300); err != nil {
		return r, err
	}
	var truth events.Truth
	var sched []profiler.ThreadTime
	path := filepath.Join(m.dir, fmt.Sprintf("waits-%d.jfr", t.jdk.Version))
	recording, err := m.recordWork(ctx, guest.PID(), func() error {
		sched, err = m.besideWaits(ctx, t, guest.PID(), path, func() (err error) {
			truth, err = guest.Run(1, waitMillis)
			return err
		})
		return err
	}, "-e", "offcpu,wall", "--budget=20%") // so that waits of this length are recorded each
	if err != nil {
		return r, err
	}
	flown, err := jfr.Read(ctx, t.jdk, path, waitEvents...)
	if err != nil {
		return r, err
	}
	offCPU, err := events.Read(recording.Kinds["offcpu"], "offcpu")
	if err != nil {
		return r, err
	}
	wall, err := events.Read(recording.Kinds["wall"], "wall")
	if err != nil {
		return r, err
	}
	async, err := m.asyncWaits(ctx, guest)
	if err != nil {
		return r, err
	}
	for _, away := range truth.Away {
		w := judgeWay(away, events.Own(offCPU), events.Own(wall))
		w.async = async(away.Method)
		w.jfr = flownTime(flown, away.Method)
		w.perf = schedShare(sched, offCPU, away.Method)
		r.ways = append(r.ways, w)
	}
	table := waitTable([]waitResult{r})
	if err := table.Print(m.out); err != nil {
		return r, err
	}
	fmt.Fprintln(m.out)
	return r, nil
}

// besideWaits has JFR and perf sched record what a process does as well.
func (m meter) besideWaits(
	ctx context.Context, t waitTrial, pid int, path string, work func() error,
) ([]profiler.ThreadTime, error) {
	var settings []jfr.Setting
	for _, event := range waitEvents {
		settings = append(settings, jfr.Setting{Event: event, Name: "threshold", Value: "0 ms"},
			jfr.Setting{Event: event, Name: "stackTrace", Value: "true"})
	}
	flight, err := jfr.Start(ctx, t.jdk, pid, path, settings...)
	if err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("perf"); err != nil { // its column is left out
		return nil, errors.Join(work(), flight.Stop(ctx))
	}
	sched, err := profiler.StartSched(ctx)
	if err != nil {
		return nil, errors.Join(err, flight.Stop(ctx))
	}
	if err = sched.WaitSampling(); err == nil {
		err = work()
	}
	list, stopped := sched.Stop(ctx, pid)
	return list, errors.Join(err, stopped, flight.Stop(ctx))
}

// asyncPeriod is how often async-profiler samples each thread.
const asyncPeriod = 10 * time.Millisecond

// asyncWaits has async-profiler record another run. It interrupts waits to sample them, and they
// would be two for whoever else records. It returns the time that it has of a method, divided by
// what the program says; NaN if async-profiler is not installed, or of methods that run.
func (m meter) asyncWaits(ctx context.Context, guest *events.Guest) (func(method string) float64, error) {
	unknown := func(string) float64 { return math.NaN() }
	async, err := profiler.FindAsync()
	if errors.Is(err, profiler.ErrNoAsync) {
		return unknown, nil
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(m.dir, "waits.collapsed")
	if err := async.StartWall(ctx, guest.PID(), asyncPeriod); err != nil {
		return nil, err
	}
	truth, err := guest.Run(1, waitMillis)
	if err := errors.Join(err, async.StopCollapsed(ctx, guest.PID(), path)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what async-profiler recorded: %w", err)
	}
	return func(method string) float64 {
		i := slices.IndexFunc(truth.Away, func(a events.OffCPU) bool { return a.Method == method })
		if i < 0 || truth.Away[i].Cause == "runnable" { // it includes the time on a CPU
			return math.NaN()
		}
		return collapsedTime(string(text), method) / float64(truth.Away[i].Sum)
	}, nil
}

// collapsedTime is the time of stacks with a method, in ns.
func collapsedTime(text, method string) (sum float64) {
	class, name, _ := strings.Cut(strings.ReplaceAll(method, "guest.", "guest/"), ".")
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 || !slices.Contains(strings.Split(line[:at], ";"), class+"."+name) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err == nil {
			sum += n * float64(asyncPeriod)
		}
	}
	return sum
}

// judgeWay adds up what was recorded of one way to wait.
func judgeWay(away events.OffCPU, offCPU, wall []events.Row) wayResult {
	f := away.Find(offCPU, 0)
	w := wayResult{OffCPU: away, offCPU: f.Time}
	w.sampled = f.Time / math.Sqrt(float64(max(events.Count(f.Rows), 1)))
	if away.Cause == "runnable" { // JFR has threads call the VM
		w.right = share(f.Right+f.Delayed+f.VMCall, f.Time)
	} else {
		w.right = share(f.Right, f.Time-f.Delayed-f.VMCall)
	}
	w.wall = events.Sum(events.Where(wall, func(r events.Row) bool {
		return r.Has(away.Method) &&
			r.Cause != "running"
	}), 0)
	return w
}

// flownTime is how long JFR's events in a method are.
func flownTime(flown []jfr.Event, method string) float64 {
	sum := math.NaN()
	for _, e := range flown {
		if slices.ContainsFunc(e.Stack, func(f jfr.Frame) bool { return f.Method == method }) {
			if math.IsNaN(sum) {
				sum = 0
			}
			sum += float64(e.Duration)
		}
	}
	return sum
}

// schedShare is the off-CPU time of perf sched, divided by ours, of the threads that wait in a
// method: all of it, as perf has no stacks.
func schedShare(threads []profiler.ThreadTime, rows []events.Row, method string) float64 {
	waits := map[int64]bool{}
	for _, r := range rows {
		if r.Has(method) {
			waits[r.TID] = true
		}
	}
	perf, ours := math.NaN(), 0.0
	for _, t := range threads {
		if waits[int64(t.TID)] {
			if math.IsNaN(perf) {
				perf = 0
			}
			perf += float64(t.Wait) // with Delay, as it is until the thread has a CPU
		}
	}
	for _, r := range rows {
		if waits[r.TID] {
			ours += r.Values[0]
		}
	}
	return perf / ours
}

// waitTable compares what all say with the program's own clock.
func waitTable(results []waitResult) report.Table {
	table := report.Table{Header: []string{"JDK", "method", "program", "-e offcpu", "cause", "of that", "-e wall",
		"JFR", "perf sched", "async-profiler", ""}}
	for _, r := range results {
		for _, w := range r.ways {
			percent := func(share float64) string {
				if math.IsNaN(share) {
					return "-"
				}
				return fmt.Sprintf("%.1f %%", 100*share)
			}
			part := func(ns float64) string { return percent(ns / float64(w.Sum)) }
			table.Add(fmt.Sprint(r.jdk.Version), strings.TrimPrefix(w.Method, "guest.Away."),
				fmt.Sprintf("%.2f s", w.Sum.Round(time.Millisecond).Seconds()), part(w.offCPU), w.Cause,
				percent(w.right), part(w.wall), part(w.jfr), percent(w.perf), percent(w.async), report.Verdict(w.ok()))
		}
	}
	return table
}
