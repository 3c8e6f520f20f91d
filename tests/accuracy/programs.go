package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/placement"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// planPrograms describes the programs of the suite as two papers describe theirs: time, methods
// executed and the size of their bytecode (table 1 of Arnold & Grove, CGO 2005), and hot methods,
// and those of them that are rarely invoked (table 1 of Lau et al., PACT 2007).
func planPrograms(jdk jvm.JDK) plan {
	return harness.Trials[meter, programTrial, programResult]{
		All: func(short bool) (trials []programTrial) {
			if short {
				return nil
			}
			for _, p := range suite.Programs() {
				if p.Small() {
					trials = append(trials, programTrial{p.Name, true, jdk})
				}
				trials = append(trials, programTrial{p.Name, false, jdk})
			}
			return trials
		},
		Run: harness.OneByOne(meter.recordProgram),
		Tables: func(results []programResult) []harness.Table {
			return []harness.Table{{Marker: "programs", Table: programTable(results)}}
		},
	}.Plan
}

// A programTrial is a program with one of its inputs.
type programTrial struct {
	program string
	small   bool
	jdk     jvm.JDK
}

func (t programTrial) input() string {
	if t.small {
		return "small"
	}
	return "usual"
}

// String is the trial's name, which -run matches.
func (t programTrial) String() string { return fmt.Sprintf("program, %s, %s", t.program, t.input()) }

// A programResult is the result of a trial.
type programResult struct {
	programTrial
	first, iteration time.Duration // CPU time of the first iteration and of a late one
	methods, natives int           // executed; natives are among the methods
	unread           int           // methods whose bytecode is too long to be read
	bytes            int           // bytes of the bytecode of all others
	hot              []hotMethod
}

// A hotMethod is a compiled method with at least hotShare of the samples.
type hotMethod struct {
	name    string
	share   float64
	verdict placement.Verdict // whether loops have to be timed, as invocations are rare; "" if that is unknown
	points  int               // blocks at which the algorithm of Lau et al. times loops
}

const (
	// hotShare is the part of a program's samples from which on a compiled method counts as hot.
	hotShare = 0.02
	// programRun is how long a program runs before it is looked at.
	programRun = 8 * time.Second
	// hotRecording is how long it is then recorded for its hot methods.
	hotRecording = 5 * time.Second
)

// loopy reports whether a method is hot although it is rarely invoked: it spends its time in loops.
func (h hotMethod) loopy() bool {
	return h.verdict == placement.Chosen || h.verdict == placement.Tight || h.verdict == placement.NoLoop
}

func (m meter) recordProgram(ctx context.Context, t programTrial) (r programResult, err error) {
	r = programResult{programTrial: t}
	start := suite.Start
	if t.small {
		start = suite.StartSmall
	}
	guest, err := start(ctx, t.jdk, t.program)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	ran, err := guest.Run(1)
	if err != nil {
		return r, err
	}
	r.first = ran[0].CPU
	if _, err := guest.RunFor(programRun); err != nil {
		return r, err
	}
	const late = 5
	if ran, err = guest.Run(late); err != nil {
		return r, err
	}
	for _, i := range ran {
		r.iteration += i.CPU / late
	}
	vm, err := openVM(guest.PID())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, vm.close()) }()
	executed, err := vm.executed()
	if err != nil {
		return r, err
	}
	for _, e := range executed {
		r.methods++
		switch {
		case e.native:
			r.natives++
		case e.size < 0:
			r.unread++
		default:
			r.bytes += e.size
		}
	}
	if !t.small {
		run, err := m.agent.Start(ctx, profiler.Options{PID: guest.PID(), Frequency: contextHz, Duration: hotRecording})
		if err != nil {
			return r, err
		}
		work := harness.StartWork(ctx, guest.RunFor)
		recording, err := run.Finish()
		_, failed := work.Finish()
		if err := errors.Join(err, failed); err != nil {
			return r, err
		}
		if r.hot, err = vm.hotMethods(recording.Profile, guest.PID(), executed); err != nil {
			return r, err
		}
	}
	fmt.Fprintf(m.out, "%v: first iteration %v, a late one %v; %d methods (%d native, %d unread), %.0f KB\n",
		t, r.first.Round(time.Millisecond), r.iteration.Round(10*time.Microsecond), r.methods, r.natives, r.unread,
		float64(r.bytes)/1024)
	for _, h := range r.hot {
		fmt.Fprintf(m.out, "\t%5.1f%% %s: %s, %d points\n", 100*h.share, h.name, h.verdict, h.points)
	}
	return r, nil
}

// hotMethods are those of a recording, with whether loops have to be timed in them. A sample
// belongs to the compiled method whose code it is in, whatever was inlined there.
func (vm *readVM) hotMethods(p *pprof.Profile, pid int, executed []executedMethod) (hot []hotMethod, err error) {
	samples := map[string]int64{}
	var all int64
	for _, s := range p.Sample {
		if !slices.Contains(s.NumLabel["pid"], int64(pid)) || len(s.Location) == 0 {
			continue
		}
		all += s.Value[0]
		leaf := s.Location[0]
		if javaLocation(leaf) && len(leaf.Line) > 0 && strings.HasPrefix(leaf.Mapping.File, "[jit") {
			samples[leaf.Line[len(leaf.Line)-1].Function.SystemName] += s.Value[0]
		}
	}
	if all == 0 {
		return nil, errors.New("no samples of the program")
	}
	addr := map[string]uint64{}
	for _, e := range executed {
		addr[e.name] = e.addr
	}
	for name, n := range samples {
		h := hotMethod{name: name, share: float64(n) / float64(all)}
		if h.share < hotShare {
			continue
		}
		if at := addr[name]; at != 0 {
			flow, err := vm.Flow(at)
			if err == nil && flow.Counted {
				var points []placement.Point
				points, h.verdict = placement.Select(hotspot.Graph(flow), placement.Default)
				h.points = len(points)
			}
		}
		hot = append(hot, h)
	}
	slices.SortFunc(hot, func(a, b hotMethod) int {
		if a.share != b.share {
			if a.share > b.share {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return hot, nil
}

func programTable(results []programResult) report.Table {
	table := report.Table{Header: []string{
		"program", "input", "first iteration", "a late one", "methods executed", "native", "bytecode, KB",
		"hot methods", "rarely invoked", "with loops to time",
	}}
	milliseconds := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", 1e3*d.Seconds()) }
	for _, r := range results {
		cells := []string{r.program, r.input(), milliseconds(r.first), milliseconds(r.iteration), fmt.Sprint(r.methods),
			fmt.Sprint(r.natives),
			fmt.Sprintf("%.0f", float64(r.bytes)/1024)}
		if r.small {
			table.Add(append(cells, "", "", "")...)
			continue
		}
		loopy, timed := 0, 0
		for _, h := range r.hot {
			if h.loopy() {
				loopy++
			}
			if h.points > 0 {
				timed++
			}
		}
		table.Add(append(cells, fmt.Sprint(len(r.hot)), fmt.Sprint(loopy), fmt.Sprint(timed))...)
	}
	return table
}
