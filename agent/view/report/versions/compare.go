package versions

import (
	"fmt"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// alone is the share of a method's samples that a version must have in a window for the window to
// be the version's.
const alone = 0.95

// A Cost compares the CPU time per call of a method in windows of one version with that in windows
// of the version before.
type Cost struct {
	Before, After *Code
	audit.Difference
	Windows [2]int
	Why     string // there is no comparison; "" if there is one
}

// Sentence says what the comparison found.
func (c *Cost) Sentence() string {
	pair := fmt.Sprintf("#%d against #%d", c.After.ID, c.Before.ID)
	if c.Why != "" {
		return pair + ": undecided: " + c.Why
	}
	change := fmt.Sprintf("CPU time per call %+.1f%%", c.Percent)
	if !math.IsNaN(c.Low + c.High) {
		change += fmt.Sprintf(" (%+.1f%% to %+.1f%%)", c.Low, c.High)
	}
	switch {
	case c.Verdict == audit.More:
		return pair + ": slower than its predecessor: " + change
	case c.Verdict == audit.Less:
		return pair + ": faster than its predecessor: " + change
	case c.Verdict == audit.Same:
		return pair + ": as fast as its predecessor: " + change
	case c.Reason == audit.TooFew:
		return fmt.Sprintf("%s: undecided: %s and %s of their own, %d each are needed: record longer, with shorter "+
			"windows", pair,
			stored.Plural(c.Windows[0], "window"), stored.Plural(c.Windows[1], "window"), audit.LeastWindows)
	}
	return pair + ": undecided: " + change
}

// CompareVersions compares each version of a method with the one before it that was sampled, of
// those with the same entry. Calls are those that the profile has of the method; where it has none,
// or too few windows, the result says so.
func (vs *Versions) CompareVersions(p *pprof.Profile, m *Method) (list []*Cost) {
	var before *Code
	var panes []*compare.Window
	var rec *compare.Recording
	unitsError, why := 0.0, ""
	for _, v := range m.Versions {
		if !v.Known || v.Total < audit.LeastWindows || v.OSR != nil {
			continue // too few samples for windows of its own
		}
		if before != nil {
			if panes == nil && why == "" {
				rec, panes, unitsError, why = callsOf(p, m)
			}
			cost := &Cost{Before: before, After: v, Why: why}
			if why == "" {
				vs.compare(cost, rec, panes, unitsError, m)
			}
			list = append(list, cost)
		}
		before = v
	}
	return list
}

// callsOf counts the calls of a method in each window of a profile, and returns their relative
// standard error if they are estimated. Why says why that is not possible.
func callsOf(p *pprof.Profile, m *Method) (_ *compare.Recording, _ []*compare.Window, relative float64, why string) {
	one := &pprof.Profile{
		SampleType: p.SampleType, DefaultSampleType: p.DefaultSampleType, Mapping: p.Mapping, Location: p.Location,
		Function: p.Function,
		Comments: p.Comments, TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos, PeriodType: p.PeriodType,
		Period: p.Period,
		Sample: slices.DeleteFunc(slices.Clone(p.Sample),
			func(s *pprof.Sample) bool { return stacks.ProcessID(s) != m.PID }),
	}
	if !stacks.HoldsCalls(one) {
		return nil, nil, 0, "calls were not counted: record with -e cpu,calls and --window=1s"
	}
	names := []string{m.SystemName}
	if stacks.AnyCalls(one, func(s *pprof.Sample) bool {
		return stacks.Label(s, stored.LabelEngine) == stored.EngineCount
	}) {
		names = append(names, m.Name) // as --count has it, which refuses one that several methods have
	}
	var rec *compare.Recording
	var err error
	for _, name := range names {
		per := compare.PerCallOf(name)
		if rec, err = compare.ReadRecording(compare.Named{Name: "the profile", Profile: one}, stored.TypeCPU,
			&compare.AuditOptions{Per: per}); err == nil {
			relative, err = per.CountCalls([]*compare.Recording{rec})
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return nil, nil, 0, "the number of calls is not known: " + err.Error()
	}
	return rec, rec.Windows, relative, ""
}

// compare fills in what windows say in which only one of the two versions ran.
// The estimate of calls may be wrong by another factor for each of the two.
func (vs *Versions) compare(c *Cost, rec *compare.Recording, panes []*compare.Window, unitsError float64, m *Method) {
	var sides [2]audit.Side[struct{}]
	for i := range sides {
		sides[i].UnitsError = unitsError
		sides[i].Runs = make([]audit.Run[struct{}], 1)
	}
	for _, w := range panes {
		var all audit.Cost
		var of [2]audit.Cost
		for _, sample := range w.Samples {
			on := vs.versionsOn(sample, m)
			if len(on) == 0 {
				continue
			}
			cost := rec.Cost(sample)
			all = all.Plus(cost)
			for i, v := range []*Code{c.Before, c.After} {
				if slices.Contains(on, v) {
					of[i] = of[i].Plus(cost)
				}
			}
		}
		for i := range sides {
			if of[i].Samples > 0 && of[i].Samples >= alone*all.Samples {
				run := &sides[i].Runs[0]
				run.Windows = append(run.Windows, audit.Window[struct{}]{Units: w.Units, Total: all})
				c.Windows[i]++
			}
		}
	}
	c.Difference = audit.Compare(sides[0], sides[1], nil, nil).Whole
}

// versionsOn are the versions of a method on a stack. A frame of the interpreter is the nil
// version.
func (vs *Versions) versionsOn(sample *pprof.Sample, m *Method) (on []*Code) {
	pid := stacks.ProcessID(sample)
	for _, loc := range sample.Location {
		if id, ok := stored.VersionOf(loc.Mapping); ok {
			if v := vs.index[codeKey{pid, id}]; v != nil && vs.of[v] == m {
				on = append(on, v)
				continue
			}
		}
		for _, f := range vs.stacks.At(loc) { // interpreted, or inlined elsewhere
			if f.SystemName == m.SystemName {
				on = append(on, nil)
			}
		}
	}
	return on
}
