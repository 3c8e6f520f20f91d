package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A trial is one guest to profile.
type trial struct {
	program guests.Program
	flavour guests.Flavour
	jdk     jvm.JDK
}

// String is the trial's name, which -run matches, and the head of its table.
func (t trial) String() string {
	return fmt.Sprintf("%s, %s, %v", t.program.Name, t.flavour.Name, t.jdk)
}

// planShares records guests that state the share of the samples of each method and thread.
func planShares(jdks []jvm.JDK) plan {
	return harness.Trials[meter, trial, result]{
		All: func(short bool) []trial { return shareTrials(jdks, short) },
		Run: harness.OneByOne(meter.tryShares),
		Tables: func(results []result) []harness.Table {
			return []harness.Table{{Marker: "shares", Table: sharesTable(results)}}
		},
		OK: func(results []result) bool { return !slices.ContainsFunc(results, result.failed) },
	}.Plan
}

// shareTrials returns all trials, or those of the short form.
func shareTrials(jdks []jvm.JDK, short bool) (trials []trial) {
	for _, jdk := range jdks {
		for _, program := range guests.Programs() {
			for _, flavour := range guests.Flavours() {
				t := trial{program: program, flavour: flavour, jdk: jdk}
				if program.Runs(flavour, jdk.Version) && (!short || t.short(jdks)) {
					trials = append(trials, t)
				}
			}
		}
	}
	return trials
}

// shortFlavours are the flavours of the short form in addition to the default one: each finds the
// next frame in a way that the default flavour hardly uses.
var shortFlavours = map[string][]string{
	"Inlined":   {"C1, debug info", "C2, debug info"},
	"Recursive": {"interpreter", "C1"},
	"Deopt":     {"C2"},
}

// short reports whether the trial is in the short form: on the oldest JDK, or on the newest for
// features that only that one has.
func (t trial) short(jdks []jvm.JDK) bool {
	oldest, newest := jdks[0], jdks[len(jdks)-1]
	if t.program.MinJDK > oldest.Version {
		return t.jdk == newest && t.flavour.Name == "default"
	}
	if t.jdk != oldest {
		return false
	}
	if t.flavour.Name == "default" {
		return true
	}
	for _, name := range shortFlavours[t.program.Name] {
		if name == t.flavour.Name {
			return true
		}
	}
	return false
}

// A result is the result of a trial.
type result struct {
	trial
	samples  int64 // samples of the guest's own threads
	verdicts []verdict
}

func (r result) failed() bool {
	return slices.ContainsFunc(r.verdicts, func(v verdict) bool { return !v.ok() })
}

func (m meter) tryShares(ctx context.Context, t trial) (result, error) {
	return m.shares(ctx, t, profiler.Options{Frequency: m.how.frequency, Duration: m.how.recording})
}

// shares records the trial's guest with these options.
func (m meter) shares(ctx context.Context, t trial, options profiler.Options) (result, error) {
	guest, err := guests.Start(ctx, t.jdk, t.program, t.flavour)
	if err != nil {
		return result{}, err
	}
	defer guest.Close()
	time.Sleep(m.how.warmup)

	options.PID = guest.PID()
	recording, err := m.agent.Record(ctx, options)
	if err != nil {
		return result{}, err
	}
	began := time.Unix(0, recording.Profile.TimeNanos)
	truth, err := guest.Truth(began, began.Add(time.Duration(recording.Profile.DurationNanos)))
	if err != nil {
		return result{}, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return result{}, err
	}
	own := stacks.OnThread(stacks.FromProfile(recording.Profile), t.program.Thread)
	r := result{trial: t, verdicts: t.judge(truth, own)}
	r.samples = stacks.Count(own, func(stacks.Stack) bool { return true })
	return r, r.print(m)
}

// print prints a line for each verdict.
func (r result) print(m meter) error {
	table := report.Table{Header: []string{r.String(), "truth %", "measured %", "tolerance", ""}}
	for _, v := range r.verdicts {
		table.Add(v.what, percent(v.truth), percent(v.measured), percent(v.tolerance), report.Verdict(v.ok()))
	}
	if err := table.Print(m.out); err != nil {
		return err
	}
	for _, v := range r.verdicts {
		if v.ok() || len(v.examples) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(m.out, "%s:\n  %s\n", v.what, strings.Join(v.examples, "\n  ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(m.out, "%d samples\n\n", r.samples)
	return err
}

func percent(share float64) string { return fmt.Sprintf("%.2f", 100*share) }

// sharesTable has a row for each guest and JDK, and a column for each flavour with the largest
// error.
func sharesTable(results []result) report.Table {
	table := report.Table{Header: []string{"guest", "JDK"}}
	flavours := guests.Flavours()
	for _, flavour := range flavours {
		table.Header = append(table.Header, flavour.Name)
	}
	type key struct{ program, release string }
	rows := make(map[key][]string)
	var order []key
	for _, r := range results {
		k := key{r.program.Name, r.jdk.Release}
		if rows[k] == nil {
			rows[k] = append([]string{k.program, k.release}, make([]string, len(flavours))...)
			order = append(order, k)
		}
		for i, flavour := range flavours {
			if flavour.Name == r.flavour.Name {
				rows[k][2+i] = r.worst()
			}
		}
	}
	for _, k := range order {
		table.Add(rows[k]...)
	}
	return table
}

// worst is the verdict that came closest to its tolerance, or exceeded it most, in percentage
// points.
func (r result) worst() string {
	var worst verdict
	used := -1.0
	for _, v := range r.verdicts {
		// A verdict without any tolerance has either used none of it or failed.
		part := math.Abs(v.measured-v.truth) / max(v.tolerance, 1e-9)
		if part > used {
			worst, used = v, part
		}
	}
	cell := fmt.Sprintf("%+.1f of ±%.1f", 100*(worst.measured-worst.truth), 100*worst.tolerance)
	if !worst.ok() {
		cell += " " + report.Verdict(false)
	}
	return cell
}
