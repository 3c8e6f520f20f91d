package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	ownreport "github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planRuns records two runs of each program with the same input, both from their first iteration
// on, and compares the seconds of one run with the corresponding ones of the other: the precision
// of Whaley (Java Grande 2000).
func planRuns(jdk jvm.JDK) plan {
	return harness.Trials[meter, runsTrial, runsResult]{
		All: func(short bool) []runsTrial {
			if short {
				return nil
			}
			return []runsTrial{{"Javac", jdk}, {"Xalan", jdk}}
		},
		Run: harness.OneByOne(meter.recordRuns),
		Tables: func(results []runsResult) []harness.Table {
			return []harness.Table{{Marker: "contexts-runs", Table: runsTable(results)}}
		},
	}.Plan
}

// A runsTrial is a program to record twice.
type runsTrial struct {
	program string
	jdk     jvm.JDK
}

// String is the trial's name, which -run matches.
func (t runsTrial) String() string { return fmt.Sprintf("contexts, %s, runs", t.program) }

// A runsResult is the result of a trial, by sampling interval.
type runsResult struct {
	runsTrial
	settings []contextSetting
	pairs    []int                 // seconds that both runs have
	between  []map[string]likeness // corresponding seconds of both runs
	within   []map[string]likeness // consecutive seconds of the first run
}

const (
	// runLength is how long a run is recorded.
	runLength = 10 * time.Second
	// runWindow is the recorded window: seconds are put together from them, as a program does not
	// begin when a window does.
	runWindow = 200 * time.Millisecond
	// begunShare is the share of its CPU time with which a window of a program counts as one in
	// which it works.
	begunShare = 4
)

// runSettings are the shortest and the longest interval of precisionStudy.
func runSettings() []contextSetting {
	all := precisionStudy.settings()
	return []contextSetting{all[0], all[len(all)-1]}
}

func (m meter) recordRuns(ctx context.Context, t runsTrial) (r runsResult, err error) {
	r = runsResult{runsTrial: t, settings: runSettings()}
	var runs [2][]*profiledRun // profiles of each run, by setting
	for i := range runs {
		if runs[i], err = m.recordRun(ctx, t, r.settings); err != nil {
			return r, fmt.Errorf("run %d: %w", i+1, err)
		}
	}
	for i := range r.settings {
		a, b := runs[0][i], runs[1][i]
		merged, err := pprof.Merge([]*pprof.Profile{a.number(1), b.number(2)})
		if err != nil {
			return r, err
		}
		seconds := secondsOf(merged)
		pairs := min(a.seconds, b.seconds)
		between, err := meanLikeness(merged, pairs, func(n int) ([]*pprof.Sample, []*pprof.Sample) {
			return seconds[secondOf(1, n)], seconds[secondOf(2, n)]
		})
		if err != nil {
			return r, err
		}
		within, err := meanLikeness(merged, pairs-1, func(n int) ([]*pprof.Sample, []*pprof.Sample) {
			return seconds[secondOf(1, n)], seconds[secondOf(1, n+1)]
		})
		if err != nil {
			return r, err
		}
		r.pairs, r.between, r.within = append(r.pairs, pairs), append(r.between, between), append(r.within, within)
	}
	r.print(m.out)
	return r, nil
}

// recordRun records one run with each setting at once.
func (m meter) recordRun(ctx context.Context, t runsTrial, settings []contextSetting) (runs []*profiledRun, err error) {
	trial := contextTrial{study: precisionStudy, program: t.program, jdk: t.jdk}
	guest, err := trial.start(ctx, m)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, guest.close()) }()
	job := contextJob{m.agent, guest, settings, contextLength{window: runWindow, windows: int(runLength / runWindow)}}
	agents, _, err := job.fromStart(ctx)
	if err != nil {
		agents.abandon()
		return nil, err
	}
	recordings, err := agents.finish()
	if err != nil {
		return nil, err
	}
	for i, recording := range recordings {
		run, err := newProfiledRun(recording.Profile, guest.pid(), settings[i].hz)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; the agent says:\n%s", settings[i].name, err, recording.Output)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// A profiledRun is the samples of a program since it began to work.
type profiledRun struct {
	profile *pprof.Profile
	begin   int64 // the first window in which it works
	seconds int   // whole ones since then
}

// newProfiledRun keeps the samples of a process, and finds when it began to work.
func newProfiledRun(p *pprof.Profile, pid, hz int) (*profiledRun, error) {
	samples := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == stored.TypeSamples })
	if samples < 0 {
		return nil, errors.New("the profile does not count samples")
	}
	var own []*pprof.Sample
	busy := map[int64]int64{}
	var last int64
	for _, s := range p.Sample {
		if window := windowOf(s); window > 0 && slices.Contains(s.NumLabel[stored.LabelPID], int64(pid)) {
			own = append(own, s)
			busy[window] += s.Value[samples]
			last = max(last, window)
		}
	}
	r := &profiledRun{profile: withSamples(p, own)}
	least := max(1, int64(runWindow.Seconds()*float64(hz))/begunShare)
	for n := int64(1); n <= last && r.begin == 0; n++ {
		if busy[n] >= least {
			r.begin = n
		}
	}
	r.seconds = min(int((last-r.begin+1)/perSecond), int(runLength/time.Second)-1) // the last one may be cut
	const enough = 3
	if r.begin == 0 || r.seconds < enough {
		return nil, fmt.Errorf("%d windows have samples of the program, the first one is %d: is the machine too busy?",
			len(busy), r.begin)
	}
	return r, nil
}

// perSecond is how many windows a second has.
const perSecond = int64(time.Second / runWindow)

func windowOf(s *pprof.Sample) int64 {
	if numbers := s.NumLabel[stored.LabelWindow]; len(numbers) > 0 {
		return numbers[0]
	}
	return 0
}

// secondOf is the window that stands for a second of a run, both from 1, in a profile of two runs.
func secondOf(run, second int) int64 { return int64(2*second + run - 1) }

// number replaces the windows of a run by seconds since it began to work. What is outside of them
// is left out.
func (r *profiledRun) number(run int) *pprof.Profile {
	var numbered []*pprof.Sample
	for _, s := range r.profile.Sample {
		second := (windowOf(s)-r.begin)/perSecond + 1
		if windowOf(s) < r.begin || second > int64(r.seconds) {
			continue
		}
		moved := *s
		moved.NumLabel = map[string][]int64{stored.LabelWindow: {secondOf(run, int(second))}}
		moved.Label = nil
		numbered = append(numbered, &moved)
	}
	return withSamples(r.profile, numbered)
}

// withSamples returns a profile of other samples, which shares everything else but the comments:
// they describe the windows that were recorded.
func withSamples(p *pprof.Profile, samples []*pprof.Sample) *pprof.Profile {
	return &pprof.Profile{
		SampleType: p.SampleType, DefaultSampleType: p.DefaultSampleType, Sample: samples,
		Mapping: p.Mapping, Location: p.Location, Function: p.Function, PeriodType: p.PeriodType, Period: p.Period,
	}
}

func secondsOf(p *pprof.Profile) map[int64][]*pprof.Sample {
	seconds := map[int64][]*pprof.Sample{}
	for _, s := range p.Sample {
		seconds[windowOf(s)] = append(seconds[windowOf(s)], s)
	}
	return seconds
}

// meanLikeness compares n pairs of seconds, numbered from 1, and returns the geometric means.
func meanLikeness(p *pprof.Profile, n int, pair func(int) (a, b []*pprof.Sample)) (map[string]likeness, error) {
	all := map[string][2][]float64{} // correlations and overlaps
	for i := 1; i <= n; i++ {
		a, b := pair(i)
		two := withSamples(p, slices.Concat(inWindow(a, 1), inWindow(b, 2)))
		var text bytes.Buffer
		if err := compare.Windows(&text, compare.Named{Name: "runs", Profile: two},
			&compare.Options{N: 1}); err != nil {
			return nil, err
		}
		alike, err := parseLikeness(text.String())
		if err != nil {
			return nil, err
		}
		for kind, l := range alike {
			all[kind] = [2][]float64{append(all[kind][0], l.correlation), append(all[kind][1], l.overlap)}
		}
	}
	means := map[string]likeness{}
	for kind, values := range all {
		defined := slices.DeleteFunc(values[0], math.IsNaN) // a correlation of equal weights has no value
		means[kind] = likeness{cct.GeometricMean(defined...), cct.GeometricMean(values[1]...)}
	}
	return means, nil
}

// inWindow returns copies of samples with another window.
func inWindow(samples []*pprof.Sample, window int64) []*pprof.Sample {
	moved := make([]*pprof.Sample, len(samples))
	for i, s := range samples {
		one := *s
		one.NumLabel = map[string][]int64{stored.LabelWindow: {window}}
		moved[i] = &one
	}
	return moved
}

func (r *runsResult) print(w io.Writer) {
	for i, s := range r.settings {
		fmt.Fprintf(w, "%v, %s: %d seconds; correlation of methods and PCCT between runs %.4f and %.4f, within one "+
			"%.4f and %.4f\n",
			r.runsTrial, s.name, r.pairs[i], r.between[i][hotMethods].correlation, r.between[i][partialCCT].correlation,
			r.within[i][hotMethods].correlation, r.within[i][partialCCT].correlation)
	}
}

// runsTable has a row for each program and interval.
func runsTable(results []runsResult) ownreport.Table {
	table := ownreport.Table{Header: []string{
		"program", "interval", "seconds", "two runs: hot methods", "overlap %", "PCCT", "overlap %",
		"one run: hot methods", "overlap %", "PCCT", "overlap %",
	}}
	for _, r := range results {
		for i, s := range r.settings {
			cells := []string{r.program, s.name, fmt.Sprint(r.pairs[i])}
			for _, of := range []map[string]likeness{r.between[i], r.within[i]} {
				for _, kind := range []string{hotMethods, partialCCT} {
					cells = append(cells, fourPlaces(of[kind].correlation), onePlace(of[kind].overlap))
				}
			}
			table.Add(cells...)
		}
	}
	return table
}
