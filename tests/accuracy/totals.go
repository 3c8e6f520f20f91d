package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planTotals makes many short recordings of programs that know their events, each by a newly
// started agent. It counts how often the true total is within the stated interval: of 100
// intervals, 95 should contain it.
func planTotals(jdks []jvm.JDK) plan {
	return harness.Trials[meter, totalTrial, totalResult]{
		All: func(short bool) []totalTrial { return totalTrials(jdks, short) },
		Run: harness.OneByOne(meter.recordTotals),
		Tables: func(results []totalResult) []harness.Table {
			return []harness.Table{{Marker: "events-totals", Table: totalsTable(results)}}
		},
		OK: totalsOK,
	}.Plan
}

// A totalTrial is some recordings of a program.
type totalTrial struct {
	program string // Allocating or Waiting
	kinds   string // as -e has them
	busy    bool   // other processes compete for all CPUs
	jdk     jvm.JDK
	lengths []time.Duration // lengths of recordings, one after the other
}

// String is the trial's name, which -run matches.
func (t totalTrial) String() string {
	machine := "idle"
	if t.busy {
		machine = "busy"
	}
	return fmt.Sprintf("totals, %s, %s, %s, %v", t.program, t.kinds, machine, t.jdk)
}

// totalKinds are the recorded kinds of each program: its own kind of events, with increasing
// numbers of others that share the budget.
var totalKinds = map[string][]string{
	"Allocating": {"alloc", "alloc,lock", "cpu,alloc", "cpu,alloc,lock", "cpu,alloc,lock,safepoint,page-faults"},
	"Waiting":    {"lock", "alloc,lock", "cpu,lock", "cpu,alloc,lock", "cpu,alloc,lock,safepoint,page-faults"},
}

const (
	// totalAim is how often a total should be within its interval.
	totalAim = 0.95
	// Possible errors of the programs' own accounts: of bytes by the VM's own allocations, of waits
	// by the time that a thread needs to read its clock, and to get a CPU after it has the lock.
	bytesTolerance, waitsTolerance = 0.005, 0.02
)

// totalLengths are how long recordings are, one after the other, of each program, set of kinds,
// machine and JDK: 120 in all. Short ones do without the longest.
var totalLengths = []time.Duration{6 * time.Second, 3 * time.Second, 1500 * time.Millisecond}

func totalTrials(jdks []jvm.JDK, short bool) (trials []totalTrial) {
	for _, program := range []string{"Allocating", "Waiting"} {
		for _, kinds := range totalKinds[program] {
			for _, busy := range []bool{false, true} {
				for _, jdk := range jdks {
					t := totalTrial{program: program, kinds: kinds, busy: busy, jdk: jdk, lengths: totalLengths}
					if short {
						t.lengths = totalLengths[1:]
					}
					if !short || kinds == "cpu,alloc,lock" && !busy && jdk == jdks[0] {
						trials = append(trials, t)
					}
				}
			}
		}
	}
	return trials
}

// A totalResult is the result of a trial.
type totalResult struct {
	totalTrial
	recorded []recordedTotal
}

// A recordedTotal is a total and its true value.
type recordedTotal struct {
	eventviews.Total
	truth, tolerance float64 // true value, and the tolerance of that
	length           time.Duration
}

// known reports whether the profile states an interval: it does not with fewer than two slices.
func (r recordedTotal) known() bool { return !math.IsInf(r.Within, 1) }

// held reports whether the total is within its interval, as far as the truth is known.
func (r recordedTotal) held() bool { return math.Abs(r.Sum-r.truth) <= r.Within+r.tolerance }

func (r totalResult) print(w io.Writer) {
	for _, total := range r.recorded {
		fmt.Fprintf(w, "%v: %v: truth %.4g, recorded %.4g ± %.2g: %+.1f %% ± %.1f, %s\n", r.totalTrial,
			total.length.Round(100*time.Millisecond),
			total.truth, total.Sum, total.Within, 100*(total.Sum/total.truth-1), 100*total.Within/total.truth,
			report.Verdict(total.held()))
	}
}

// recordTotals makes the recordings of a trial.
func (m meter) recordTotals(ctx context.Context, t totalTrial) (r totalResult, err error) {
	r.totalTrial = t
	threads, amount := 2*runtime.NumCPU(), 500_000
	if t.program == "Waiting" {
		amount = 500
	}
	// Without the flags of its own that other studies need: buffers are as the JVM chooses them, of
	// megabytes.
	guest, err := events.Start(ctx, t.jdk, events.Program{Class: t.program}, "-Xmx1g")
	if err != nil {
		return r, err
	}
	defer guest.Close()
	if _, err := guest.Run(threads, amount); err != nil {
		return r, err
	}
	if t.busy {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for range runtime.NumCPU() {
			if err := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done").Start(); err != nil {
				return r, fmt.Errorf("busy the machine: %w", err)
			}
		}
	}
	began := time.Now()
	if _, err := guest.Run(threads, amount); err != nil {
		return r, err
	}
	once := time.Since(began)
	for _, length := range t.lengths {
		work := max(int(float64(amount)*float64(length)/float64(once)), 1)
		began := time.Now()
		s, err := m.seeRun(ctx, guest, threads, work, "-e", t.kinds)
		if err != nil {
			return r, err
		}
		total, err := t.judge(s)
		if err != nil {
			return r, err
		}
		total.length = time.Since(began)
		r.recorded = append(r.recorded, total)
	}
	r.print(m.out)
	return r, nil
}

// judge reads the total of the program's own kind of events.
func (t totalTrial) judge(s seen) (r recordedTotal, err error) {
	kind := profile.Allocations
	if t.program == "Waiting" {
		kind = profile.Locks
		for _, w := range s.truth.Waits {
			r.truth += float64(w.LongSum)
		}
		// The threads' clocks run on while probes record that a wait is over.
		r.truth -= float64(s.recording.Stats.Events.Cost)
		r.tolerance = within(waitsTolerance, r.truth)
	} else {
		r.truth = float64(s.truth.Allocated)
		r.tolerance = within(bytesTolerance, r.truth)
	}
	p := s.recording.Profile
	if strings.Contains(t.kinds, ",") {
		p = s.recording.Kinds[kind.String()]
	}
	if p == nil {
		return r, fmt.Errorf("nothing was recorded of %v\n%s", kind, s.recording.Output)
	}
	r.Total, err = eventviews.TotalOf(p, kind)
	return r, err
}

func totalsTable(results []totalResult) report.Table {
	table := report.Table{Header: []string{"program", "recorded", "machine", "recordings", "with an interval",
		"within it", "off by, median", "at most", "interval, median"}}
	type row struct{ program, kinds, machine string }
	var order []row
	of := map[row][]recordedTotal{}
	var all []recordedTotal
	for _, r := range results {
		key := row{r.program, r.kinds, "idle"}
		if r.busy {
			key.machine = "busy"
		}
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], r.recorded...)
		all = append(all, r.recorded...)
	}
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", v) }
	add := func(key row, list []recordedTotal) {
		var off, half []float64
		held := 0
		for _, r := range list {
			off = append(off, 100*math.Abs(r.Sum/r.truth-1))
			if r.known() {
				half = append(half, 100*r.Within/r.truth)
				if r.held() {
					held++
				}
			}
		}
		slices.Sort(off)
		slices.Sort(half)
		typical := "-"
		if len(half) > 0 {
			typical = "±" + percent(half[len(half)/2])
		}
		table.Add(key.program, key.kinds, key.machine, fmt.Sprint(len(list)), fmt.Sprint(len(half)), fmt.Sprint(held),
			percent(off[len(off)/2]), percent(off[len(off)-1]), typical)
	}
	for _, key := range order {
		add(key, of[key])
	}
	if len(all) > 0 {
		add(row{"all", "", ""}, all)
	}
	return table
}

// totalsOK accepts a total out of its interval once in twenty times. It is an error if it always
// is, and if there are no intervals or only meaningless ones.
func totalsOK(results []totalResult) bool {
	var held, all, wide int
	for _, r := range results {
		for _, total := range r.recorded {
			if total.known() {
				if all++; total.held() {
					held++
				}
				if total.Within > total.truth {
					wide++
				}
			}
		}
	}
	// Four standard errors below the aim.
	n := float64(all)
	if len(results) > 0 && 2*wide >= all {
		return false
	}
	return float64(held) >= totalAim*n-4*math.Sqrt(totalAim*(1-totalAim)*n)-1
}
