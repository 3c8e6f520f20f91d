package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/callshapes"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// planShapes counts how often the true number of calls is within the interval of a stock JVM's
// profile, for programs that count their own calls. Of 100 intervals, 95 should contain it.
func planShapes(jdks []jvm.JDK) plan {
	return harness.Trials[meter, shapeTrial, shapeResult]{
		All: func(short bool) []shapeTrial { return shapeTrials(jdks, short) },
		Run: harness.OneByOne(meter.recordShape),
		Tables: func(results []shapeResult) []harness.Table {
			return []harness.Table{{Marker: "calls-shapes", Table: shapesTable(results)}}
		},
		OK: shapesOK,
	}.Plan
}

// A shapeTrial is one program in one JVM.
type shapeTrial struct {
	shape string
	flag  string // flag of the JVM; with inlining, logical calls are judged
	jdk   jvm.JDK
}

// String is the trial's name, which -run matches.
func (t shapeTrial) String() string {
	return fmt.Sprintf("callshapes, %s, %s, %v", t.shape, t.how(), t.jdk)
}

func (t shapeTrial) how() string {
	if t.flag == "" {
		return "inlining"
	}
	return t.flag
}

func shapeTrials(jdks []jvm.JDK, short bool) (trials []shapeTrial) {
	if short {
		return []shapeTrial{{"batch", "", jdks[0]}}
	}
	for _, shape := range callshapes.Shapes {
		for _, jdk := range []jvm.JDK{jdks[0], jdks[len(jdks)-1]} {
			trials = append(trials, shapeTrial{shape, "", jdk}, shapeTrial{shape, noInlining, jdk})
		}
	}
	return trials
}

// A shapeResult is the edges of one program.
type shapeResult struct {
	shapeTrial
	edges []callshapes.Judged
}

const shapeWarmup = 5 * time.Second

func (m meter) recordShape(ctx context.Context, t shapeTrial) (r shapeResult, err error) {
	r.shapeTrial = t
	var flags []string
	if t.flag != "" {
		flags = append(flags, t.flag)
	}
	length := 2 * m.how.recording
	p, err := callshapes.Start(ctx, t.jdk, t.shape, time.Hour, flags...)
	if err != nil {
		return r, err
	}
	defer p.Close()
	if err := p.Wait(ctx, shapeWarmup); err != nil {
		return r, err
	}
	options := profiler.Options{PID: p.PID(), Duration: length, Extra: []string{"-e", "calls"}}
	if t.flag == "" {
		options.Extra = append(options.Extra, "--logical")
	}
	recording, err := m.agent.Record(ctx, options)
	if err != nil {
		return r, err
	}
	if err := p.Wait(ctx, 200*time.Millisecond); err != nil { // for the last counts
		return r, err
	}
	truth, err := p.Truth(recording.Profile)
	if err != nil {
		return r, err
	}
	if r.edges, err = callshapes.Judge(recording.Profile, truth); err != nil {
		return r, err
	}
	r.print(m.out)
	return r, nil
}

func (r shapeResult) print(w io.Writer) {
	for _, e := range r.edges {
		fmt.Fprintf(w, "%v: %s -> %s: truth %.4g, estimate %.3g, [%.3g, %.3g] (%s): %s\n", r.shapeTrial, e.Caller,
			e.Callee, e.Truth, e.Value,
			e.Low, e.High, e.Bases, verdictOf(&e))
	}
}

func verdictOf(e *callshapes.Judged) string {
	if e.High == 0 {
		return "none"
	}
	return report.Verdict(e.Held())
}

func shapesTable(results []shapeResult) report.Table {
	table := report.Table{Header: []string{"program", "JVM", "edges", "with an interval", "within it",
		"factor of the interval, median", "off by a factor, median"}}
	type row struct{ shape, how string }
	of := map[row][]callshapes.Judged{}
	var order []row
	add := func(key row, edges []callshapes.Judged) {
		if of[key] == nil {
			order = append(order, key)
		}
		of[key] = append(of[key], edges...)
	}
	for _, r := range results {
		add(row{r.shape, r.how()}, r.edges)
	}
	for _, r := range results {
		add(row{"all", r.how()}, r.edges)
	}
	for _, key := range order {
		known, held, factor, off := judgedEdges(of[key])
		table.Add(key.shape, key.how, fmt.Sprint(len(of[key])), fmt.Sprint(known), fmt.Sprint(held),
			fmt.Sprintf("%.1f", factor), fmt.Sprintf("%.1f", off))
	}
	return table
}

// judgedEdges returns how many edges have an interval, how many of them hold, and the medians of
// their factors and errors.
func judgedEdges(edges []callshapes.Judged) (known, held int, factor, off float64) {
	var factors, errors []float64
	for i := range edges {
		e := &edges[i]
		if e.High == 0 {
			continue
		}
		known++
		if e.Held() {
			held++
		}
		factors = append(factors, e.Factor())
		errors = append(errors, math.Exp(math.Abs(math.Log(max(e.Value, 1)/e.Truth))))
	}
	return known, held, middle(factors), middle(errors)
}

func middle(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// shapesOK accepts an interval that does not hold once in twenty times, and four standard errors
// more.
func shapesOK(results []shapeResult) bool {
	var all []callshapes.Judged
	for _, r := range results {
		all = append(all, r.edges...)
	}
	known, held, _, _ := judgedEdges(all)
	n := float64(known)
	return float64(held) >= totalAim*n-4*math.Sqrt(totalAim*(1-totalAim)*n)-1
}
