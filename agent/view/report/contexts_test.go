package report_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

func TestContextsGolden(t *testing.T) {
	chained, partial := sinktest.MustPprof(t, sinktest.ShopChained()), sinktest.MustPprof(t, sinktest.ShopPartial())
	sinktest.Golden(t, "chained.contexts.golden", sinktest.Show(t, report.Contexts, chained, nil))
	sinktest.Golden(t, "chained.tree.golden", sinktest.Show(t, report.Tree, chained, nil)+
		sinktest.Show(t, sinktest.ViewFooter, chained, nil))
	sinktest.Golden(t, "partial.contexts.golden", sinktest.Show(t, report.Contexts, partial, nil))
	sinktest.Golden(t, "partial.tree.golden", sinktest.Show(t, report.Tree, partial, nil)+
		sinktest.Show(t, sinktest.ViewFooter, partial, nil))
	sinktest.Golden(t, "partial.pprof.golden", sinktest.LocalTime.ReplaceAllString(sinktest.Reparse(t,
		partial).String(), "Time: (local)"))

	// Several windows: two JVMs, one of which chains and is there from the second window on.
	first, second := sinktest.ShopPartial(), sinktest.ShopPartial()
	other := sinktest.ShopChained().Processes[0]
	other.PID, other.Comm = 77, "the JVM with a name of more than twenty columns"
	second.Processes = append(second.Processes, other)
	third := sinktest.ShopChained()
	third.Processes[0].PID, third.Processes[0].Comm = 77, other.Comm
	third.Processes[0].Contexts.Nodes, third.Processes[0].Contexts.Check = 400, nil
	w, err := sinktest.ShopWindows(first, second, third)
	if err != nil {
		t.Fatal(err)
	}
	sinktest.Golden(t, "windows.contexts.golden", sinktest.Show(t, report.Contexts, sinktest.MustStored(t, w),
		&layout.Options{N: 3, Width: 79}))
}

func TestContextsFitTerminal(t *testing.T) {
	for _, p := range []*profile.Profile{sinktest.ShopChained(), sinktest.ShopPartial()} {
		for _, view := range []sinktest.ViewFunc{report.Contexts, report.Report} {
			for line := range strings.Lines(sinktest.Show(t, view, sinktest.MustPprof(t, p), nil)) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 79 {
					t.Errorf("line of %d columns: %s", n, line)
				}
			}
		}
	}
}

func TestContextsErrors(t *testing.T) {
	for _, p := range []*pprof.Profile{sinktest.MustPprof(t, sinktest.Shop()), {},
		sinktest.MustPprof(t, sinktest.ShopCalls())} {
		var out bytes.Buffer
		if err := report.Contexts(&out, p, nil); !errors.Is(err, report.ErrNoContexts) ||
			!strings.Contains(err.Error(), "--context=chain") || out.Len() > 0 {
			t.Errorf("Contexts = %v with %d bytes written", err, out.Len())
		}
	}
	p := sinktest.MustPprof(t, sinktest.Shop())
	store := func(list ...stored.ProcessContexts) {
		m := stored.Metadata{Contexts: list}
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
	}
	var many []stored.ProcessContexts
	for pid := range int64(100) {
		many = append(many, stored.ProcessContexts{Comm: "java", PID: pid,
			Contexts: profile.Contexts{Mode: profile.ContextChain, Walked: 1}})
	}
	store(many...)
	if got := sinktest.Show(t, report.Contexts, p, &layout.Options{N: 2, Width: 79}); !strings.Contains(got,
		"java (pid 1)\n98 more lines\n") {
		t.Errorf("not two of a hundred processes:\n%s", got)
	}
	// Of what nothing was learned, nothing is shown but that.
	if got := sinktest.Show(t, report.Contexts, p, nil); strings.Contains(got, "Contexts learned") ||
		!strings.HasPrefix(got, "How the contexts") {
		t.Errorf("nothing was learned:\n%s", got)
	}
	// Nothing that a file says makes a view fail that could show it.
	store(stored.ProcessContexts{Comm: "java", PID: 1, Contexts: profile.Contexts{
		Mode: profile.ContextChain, Walked: math.MaxUint64, Linked: math.MaxUint64, Shared: 7,
		BySite: [3]uint64{9, 9, 9},
	}})
	if got := sinktest.Show(t, report.Contexts, p, nil); !strings.Contains(got, "7 (-)") ||
		!strings.Contains(got, "36893488147419103232") || !strings.Contains(got, " - ") ||
		strings.Contains(got, "NaN") {
		t.Errorf("huge numbers:\n%s", got)
	}
	// Metadata that cannot be read is no metadata that is missing.
	p.Comments = []string{strings.Replace(p.Comments[len(p.Comments)-1], "{", "[", 1)}
	if err := report.Contexts(new(bytes.Buffer), p, nil); err == nil || errors.Is(err, report.ErrNoContexts) ||
		!strings.Contains(err.Error(), "malformed") {
		t.Errorf("Contexts of malformed metadata = %v", err)
	}
}

// A .txt output of record has the same table.
func TestReportHasContexts(t *testing.T) {
	for name, test := range map[string]struct {
		p    *profile.Profile
		want bool
	}{"chained": {sinktest.ShopChained(), true}, "walked": {sinktest.Shop(), false}} {
		var text bytes.Buffer
		if err := sink.FormatText.Encode(&text, test.p, sink.ContentOf(test.p)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "How the contexts of samples were found"); got != test.want {
			t.Errorf("%s: the report has the contexts: %v, in\n%s", name, got, &text)
		}
	}
}

func TestFooterTellsOfDoubts(t *testing.T) {
	sampled := func(of profile.Certainty, weight uint64) *profile.Thread {
		return &profile.Thread{TID: 1, Context: of, Tree: sinktest.ContextTree(sinktest.Sampled{Weight: weight,
			Frames: sinktest.Stack{sinktest.Fib}})}
	}
	chain := &profile.Contexts{Mode: profile.ContextChain}
	for _, test := range []struct {
		contexts *profile.Contexts
		threads  []*profile.Thread
		want     string // "" for nothing
	}{
		{nil, []*profile.Thread{sampled(profile.Certain, 1)}, ""},
		{chain, []*profile.Thread{sampled(profile.Certain, 1)},
			"contexts (chain): one fits each sample (docs/measurements/contexts.md shows how often it is right)\n"},
		{&profile.Contexts{Mode: profile.ContextPartial}, nil,
			"contexts (partial): one fits each sample (docs/measurements/contexts.md shows how often it is right)\n"},
		{chain, []*profile.Thread{sampled(profile.Certain, 3), sampled(profile.Ambiguous, 1)},
			"contexts (chain): for 25.0% of the samples several fit and share the weight (ambiguous)\n"},
		{chain, []*profile.Thread{sampled(profile.Certain, 9999), sampled(profile.Unplaced, 1)},
			"contexts (chain): for less than 0.1% of the samples the callers beyond the first are unknown " +
				"(unplaced)\n"},
		{nil, []*profile.Thread{sampled(profile.Fitted, 1), sampled(profile.Unplaced, 3)},
			"contexts: for 25.0% of the samples none fits, and the context of a possible caller or callee is used " +
				"(fitted); for 75.0% the callers beyond the first are unknown (unplaced)\n"},
	} {
		p := sinktest.MustPprof(t, &profile.Profile{Period: 1, Processes: []*profile.Process{{PID: 1, Comm: "java",
			Contexts: test.contexts, Threads: test.threads}}})
		got := sinktest.Show(t, sinktest.ViewFooter, p, &layout.Options{})
		if _, line, _ := strings.Cut(got, "\n"); line != test.want {
			t.Errorf("%q, want %q", line, test.want)
		}
	}
	p := sinktest.MustPprof(t, &profile.Profile{Processes: []*profile.Process{{PID: 1, Comm: "java",
		Contexts: &profile.Contexts{Mode: profile.ContextWalk, Walked: 1}}}})
	if got := sinktest.Show(t, sinktest.ViewFooter, p, nil); strings.Contains(got, "contexts") {
		t.Errorf("the footer mentions contexts although every stack was walked:\n%s", got)
	}
}
