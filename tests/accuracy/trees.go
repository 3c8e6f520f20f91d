package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	ownreport "github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// planTrees counts every call of an iteration with its whole context, in two JVMs, and describes
// the trees as Moret, Binder and Villazón do (PEPM 2009): their size and their native methods
// (table 1), which calls cross between application and class library (table 2), and how much two
// runs have in common (section 5.1).
func planTrees(jdk jvm.JDK) plan {
	return harness.Trials[meter, treeTrial, treeResult]{
		All: func(short bool) (trials []treeTrial) {
			if short {
				return nil
			}
			for _, program := range []string{"Xerces", "Jython", "Work"} { // others take minutes
				trials = append(trials, treeTrial{program, jdk})
			}
			return trials
		},
		Run: harness.OneByOne(meter.recordTrees),
		Tables: func(results []treeResult) []harness.Table {
			return []harness.Table{{Marker: "exact-trees", Table: treeTable(results)},
				{Marker: "exact-layers", Table: treeLayerTable(results)}}
		},
	}.Plan
}

// A treeTrial is a program with a small input.
type treeTrial struct {
	program string
	jdk     jvm.JDK
}

// String is the trial's name, which -run matches.
func (t treeTrial) String() string { return fmt.Sprintf("trees, %s", t.program) }

// A treeResult is the result of a trial: of the first JVM, but for the overlap.
type treeResult struct {
	treeTrial
	nodes, nativeNodes uint64
	calls, nativeCalls uint64
	depth              int
	overlap            float64 // % of the calls of two JVMs, by context
	// % of the calls that the tree of the paper's former rules has in common with the whole one
	former float64
	layers string
}

func (m meter) recordTrees(ctx context.Context, t treeTrial) (r treeResult, err error) {
	r = treeResult{treeTrial: t}
	const runs = 2
	// All contexts of both runs are in one tree, so that they have the same numbers.
	names := &cct.Tree[string]{Limit: 1 << 23}
	var contexts [runs]cct.Weights[cct.NodeID]
	for run := range runs {
		p, natives, err := m.recordTree(ctx, t)
		if err != nil {
			return r, fmt.Errorf("JVM %d: %w", run+1, err)
		}
		contexts[run] = contextsOf(p, names, nil)
		if run == 0 {
			r.describe(p, natives)
			r.former = cct.Overlap(contexts[run], contextsOf(p, names, natives))
			if r.layers, err = layersOf(p); err != nil {
				return r, err
			}
		}
	}
	if names.Overflow() > 0 {
		return r, errors.New("too many contexts to compare")
	}
	r.overlap = cct.Overlap(contexts[0], contexts[1])
	fmt.Fprintf(m.out, "%v: %d nodes, %d calls; native %d and %d; overlap of two JVMs %.3f %%, with former rules "+
		"%.2f %%\n",
		t, r.nodes, r.calls, r.nativeNodes, r.nativeCalls, r.overlap, r.former)
	return r, nil
}

// recordTree records one iteration of a warm program, and returns the native methods that ran.
func (m meter) recordTree(ctx context.Context, t treeTrial) (p *pprof.Profile, natives map[string]bool, err error) {
	guest, err := suite.StartSmall(ctx, t.jdk, t.program, "-XX:+"+exact.Flag, exact.NoC1Inlining)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	const warmup = 20
	if _, err := guest.Run(warmup); err != nil {
		return nil, nil, err
	}
	recording, err := m.agent.While(ctx, profiler.Options{PID: guest.PID(), Extra: []string{"-e", "calls", "--exact"}},
		(*profiler.AgentRun).WaitAttached, func(*profiler.AgentRun) error {
			_, err := guest.Run(1)
			return err
		})
	if err != nil {
		return nil, nil, err
	}
	vm, err := openVM(guest.PID())
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, vm.close()) }()
	executed, err := vm.executed()
	if err != nil {
		return nil, nil, err
	}
	natives = map[string]bool{}
	for _, e := range executed {
		if e.native {
			natives[e.name] = true
		}
	}
	own := &pprof.Profile{SampleType: recording.Profile.SampleType, Comments: recording.Profile.Comments}
	for _, s := range recording.Profile.Sample {
		if slices.Contains(s.NumLabel[stored.LabelPID], int64(guest.PID())) {
			own.Sample = append(own.Sample, s)
		}
	}
	if len(own.Sample) == 0 {
		return nil, nil, fmt.Errorf("no calls were counted; the agent says:\n%s", recording.Output)
	}
	return own, natives, nil
}

// describe counts nodes and calls of all threads' trees. Each sample is a node.
func (r *treeResult) describe(p *pprof.Profile, natives map[string]bool) {
	for _, s := range p.Sample {
		calls := uint64(s.Value[0])
		r.nodes++
		r.calls += calls
		r.depth = max(r.depth, len(s.Location))
		if natives[s.Location[0].Line[0].Function.SystemName] {
			r.nativeNodes++
			r.nativeCalls += calls
		}
	}
}

// contextsOf returns the calls of each context, of all threads together. With natives it follows
// the rules that the paper compares with: calls of native methods are missing, and what native
// methods call back is below the root.
func contextsOf(p *pprof.Profile, names *cct.Tree[string], natives map[string]bool) cct.Weights[cct.NodeID] {
	contexts := cct.Weights[cct.NodeID]{}
	var stack []string
	for _, s := range p.Sample {
		stack = stack[:0]
		for _, location := range s.Location {
			name := location.Line[0].Function.SystemName // each is one method
			if natives[name] {
				break
			}
			stack = append(stack, generated.ReplaceAllString(name, "$1"))
		}
		if len(stack) == 0 {
			continue
		}
		contexts[names.Add(stack, 0)] += float64(s.Value[0])
	}
	return contexts
}

// layersOf is the line of report --view=layers.
func layersOf(p *pprof.Profile) (string, error) {
	var text bytes.Buffer
	if err := report.Layers(&text, p, nil); err != nil {
		return "", err
	}
	lines := strings.Split(text.String(), "\n")
	const line = 2 // after the title and the names of the columns
	if len(lines) <= line {
		return "", fmt.Errorf("report --view=layers has no line of the process:\n%s", &text)
	}
	return lines[line], nil
}

func treeTable(results []treeResult) ownreport.Table {
	table := ownreport.Table{Header: []string{"program", "nodes", "native", "calls", "native", "deepest",
		"former rules: overlap %", "two JVMs: overlap %", "aim"}}
	for _, r := range results {
		part := func(n, of uint64) string { return fmt.Sprintf("%d (%.2f %%)", n, 100*float64(n)/float64(of)) }
		table.Add(r.program, fmt.Sprint(r.nodes), part(r.nativeNodes, r.nodes), fmt.Sprint(r.calls),
			part(r.nativeCalls, r.calls),
			fmt.Sprint(r.depth), fmt.Sprintf("%.2f", r.former), fmt.Sprintf("%.3f", r.overlap),
			ownreport.Verdict(r.overlap > reproducible))
	}
	return table
}

// reproducible is the overlap above which profiles of two runs agree, as theirs do for some
// programs.
const reproducible = 99

func treeLayerTable(results []treeResult) ownreport.Table {
	table := ownreport.Table{Header: []string{"program", "App → App", "JDK → App", "App → JDK", "JDK → JDK", "others"}}
	for _, r := range results {
		cells := []string{r.program}
		const columns = 5
		table.Add(append(cells, strings.Fields(r.layers)[:columns]...)...)
	}
	return table
}
