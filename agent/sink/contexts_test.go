package sink_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

func TestContextsGolden(t *testing.T) {
	chained, partial := mustPprof(t, shopChained()), mustPprof(t, shopPartial())
	golden(t, "chained.contexts.golden", show(t, sink.Contexts, chained, nil))
	golden(t, "chained.tree.golden", show(t, sink.Tree, chained, nil)+show(t, viewFooter, chained, nil))
	golden(t, "partial.contexts.golden", show(t, sink.Contexts, partial, nil))
	golden(t, "partial.tree.golden", show(t, sink.Tree, partial, nil)+show(t, viewFooter, partial, nil))
	golden(t, "partial.pprof.golden", localTime.ReplaceAllString(reparse(t, partial).String(), "Time: (local)"))

	// Several windows: two JVMs, one of which chains and is there from the second window on.
	first, second := shopPartial(), shopPartial()
	other := shopChained().Processes[0]
	other.PID, other.Comm = 77, "the JVM with a name of more than twenty columns"
	second.Processes = append(second.Processes, other)
	third := shopChained()
	third.Processes[0].PID, third.Processes[0].Comm = 77, other.Comm
	third.Processes[0].Contexts.Nodes, third.Processes[0].Contexts.Check = 400, nil
	w, err := shopWindows(first, second, third)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "windows.contexts.golden", show(t, sink.Contexts, mustStored(t, w), &sink.ViewOptions{N: 3, Width: 79}))
}

func TestContextsFitTerminal(t *testing.T) {
	for _, p := range []*profile.Profile{shopChained(), shopPartial()} {
		for _, view := range []viewFunc{sink.Contexts, sink.Report} {
			for line := range strings.Lines(show(t, view, mustPprof(t, p), nil)) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 79 {
					t.Errorf("line of %d columns: %s", n, line)
				}
			}
		}
	}
}

func TestContextsErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	for _, p := range []*pprof.Profile{mustPprof(t, shop()), {}, mustPprof(t, shopCalls())} {
		var out bytes.Buffer
		if err := sink.Contexts(&out, p, nil); !errors.Is(err, sink.ErrNoContexts) || !strings.Contains(err.Error(), "--context=chain") || out.Len() > 0 {
			t.Errorf("Contexts = %v with %d bytes written", err, out.Len())
		}
	}
	var many []string
	for pid := range 1<<18 + 1 {
		many = append(many, fmt.Sprintf("contexts of java (pid %d): chain, walked=1", pid))
	}
	p := mustPprof(t, shop())
	p.Comments = many
	var out bytes.Buffer
	if err := sink.Contexts(&out, p, nil); err == nil || !strings.Contains(err.Error(), "more than 262144 processes") {
		t.Errorf("Contexts of too many processes = %v", err)
	}
	p.Comments = many[:100]
	if got := show(t, sink.Contexts, p, &sink.ViewOptions{N: 2, Width: 79}); !strings.Contains(got, "java (pid 1)\n98 more lines\n") {
		t.Errorf("not two of a hundred processes:\n%s", got)
	}
	// Of what nothing was learned, nothing is told but that.
	if got := show(t, sink.Contexts, p, nil); strings.Contains(got, "Contexts learned") || !strings.HasPrefix(got, "How the contexts") {
		t.Errorf("nothing was learned:\n%s", got)
	}
	// Nothing that a file says makes a view fail that could show it.
	p.Comments = []string{"contexts of java (pid 1): chain, walked=18446744073709551615, linked=18446744073709551615, shared=7, by-site=9/9/9"}
	if got := show(t, sink.Contexts, p, nil); !strings.Contains(got, "7 (-)") || !strings.Contains(got, "36893488147419103232") || !strings.Contains(got, " - ") || strings.Contains(got, "NaN") {
		t.Errorf("huge numbers:\n%s", got)
	}
}

// Whoever records to a .txt sees it, too.
func TestReportHasContexts(t *testing.T) {
	for name, test := range map[string]struct {
		p    *profile.Profile
		want bool
	}{"chained": {shopChained(), true}, "walked": {shop(), false}} {
		var text bytes.Buffer
		if err := sink.FormatText.Encode(&text, test.p); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "How the contexts of samples were found"); got != test.want {
			t.Errorf("%s: contexts are told of: %v, in\n%s", name, got, &text)
		}
	}
}

// Samples of certain contexts carry no label, so that files of walked stacks stay as they are.
func TestContextLabels(t *testing.T) {
	got := make(map[string]int64)
	for _, s := range reparse(t, mustPprof(t, shopChained())).Sample {
		got[strings.Join(s.Label["context"], "+")] += s.Value[0]
	}
	if want := (map[string]int64{"": 863, "ambiguous": 120, "fitted": 13, "unplaced": 4}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("samples by label: %v, want %v", got, want)
	}
}

func TestFooterTellsOfDoubts(t *testing.T) {
	sampled := func(of profile.Certainty, weight uint64) *profile.Thread {
		return &profile.Thread{TID: 1, Context: of, Tree: contextTree(sampled{weight, stack{fib}})}
	}
	chain := &profile.Contexts{Mode: profile.ContextChain}
	for _, test := range []struct {
		contexts *profile.Contexts
		threads  []*profile.Thread
		want     string // "" for nothing
	}{
		{nil, []*profile.Thread{sampled(profile.Certain, 1)}, ""},
		{chain, []*profile.Thread{sampled(profile.Certain, 1)}, "contexts (chain): one fits each sample (how often it is the right one: docs/accuracy.md)\n"},
		{&profile.Contexts{Mode: profile.ContextPartial}, nil, "contexts (partial): one fits each sample (how often it is the right one: docs/accuracy.md)\n"},
		{chain, []*profile.Thread{sampled(profile.Certain, 3), sampled(profile.Ambiguous, 1)},
			"contexts (chain): of 25.0% of the samples several fit and share the weight (ambiguous)\n"},
		{chain, []*profile.Thread{sampled(profile.Certain, 9999), sampled(profile.Unplaced, 1)},
			"contexts (chain): of less than 0.1% of the samples nothing is known beyond the first caller (unplaced)\n"},
		{nil, []*profile.Thread{sampled(profile.Fitted, 1), sampled(profile.Unplaced, 3)},
			"contexts: of 25.0% of the samples none fits, and that of a possible caller or callee was taken (fitted); of 75.0% nothing is known beyond the first caller (unplaced)\n"},
	} {
		p := mustPprof(t, &profile.Profile{Period: 1, Processes: []*profile.Process{{PID: 1, Comm: "java", Contexts: test.contexts, Threads: test.threads}}})
		got := show(t, viewFooter, p, &sink.ViewOptions{})
		if _, line, _ := strings.Cut(got, "\n"); line != test.want {
			t.Errorf("%q, want %q", line, test.want)
		}
	}
	p := mustPprof(t, &profile.Profile{})
	p.Comments = append(p.Comments, "contexts of java (pid 1): walk, walked=1")
	if got := show(t, viewFooter, p, nil); strings.Contains(got, "contexts") {
		t.Errorf("walked contexts are told of:\n%s", got)
	}
}

// A context that is too light to be shown leaves its mark with the caller that is.
func TestTreeLiftsMarks(t *testing.T) {
	p := shopChained()
	for share, want := range map[float64][]string{
		0:  {"HashMap.getNode [ia] ", "HashMap.get [i] ", "Cart.total [jf] ", "do_futex [kf] ", "Shop.checkout [ij] ", "Fib.fib [ju] "},
		1:  {"HashMap.getNode [ia] ", "HashMap.get [i] ", "Cart.total [jf] ", "Shop.checkout [ijf] "},
		5:  {"HashMap.getNode [ja] ", "Cart.total [jf] ", "Shop.checkout [ijaf] "},
		60: {"Cart.total [jaf] ", "Shop.checkout [ijaf] ", "(call_stub) [s] "},
	} {
		got := show(t, sink.Tree, mustPprof(t, p), &sink.ViewOptions{MinShare: share})
		for _, want := range want {
			if !strings.Contains(got, want) {
				t.Errorf("from %g%% on: no %q in\n%s", share, want, got)
			}
		}
	}
	// The mark is about contexts, and the hot methods are hot in whatever context.
	if got := show(t, sink.Methods, mustPprof(t, p), nil); strings.Contains(got, "ambiguous") || !strings.Contains(got, "[ij] java.util.HashMap.getNode") {
		t.Errorf("methods are marked:\n%s", got)
	}
}

// Without a column of entries, or with one of zeros, nothing is said of them.
func TestTreeWithoutEntries(t *testing.T) {
	p := mustPprof(t, shopPartial())
	for _, s := range p.Sample {
		s.Value[2] = 0
	}
	for name, p := range map[string]*pprof.Profile{"zeros": p, "none": mustPprof(t, shop())} {
		if got := show(t, sink.Tree, p, nil); strings.Contains(got, " e:") || strings.Contains(got, "entered") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	p.Sample[0].Value[2] = -1
	p.Sample[1].Value[2] = 1
	var out bytes.Buffer
	if err := sink.Tree(&out, p, nil); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("negative entries: %v", err)
	}
}

// Entries are a column beside samples, for contexts that were only entered, too.
func TestPprofEntries(t *testing.T) {
	p := &profile.Profile{Period: 10, Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: entered(
		sampled{0, stack{getNode, get, total}}, sampled{4, stack{total}},
	)}}}}}
	var got []string
	for _, s := range mustPprof(t, p).Sample {
		got = append(got, fmt.Sprint(s.Location[0].Line[0].Function.Name, s.Value, s.Label["attribution"]))
	}
	// Nobody was in getNode, so there is no time that may belong to it.
	if want := "[com.acme.Cart.total[4 40 1] [] java.util.HashMap.get[0 0 1] [] java.util.HashMap.getNode[0 0 1] []]"; fmt.Sprint(got) != want {
		t.Errorf("samples %v, want %s", got, want)
	}
	for content, want := range map[sink.Content]string{
		sink.Time: "samples cpu", sink.Time | sink.Entries: "samples cpu entries", sink.Time | sink.CallCounts | sink.Entries: "samples cpu calls entries",
		sink.CallCounts | sink.Entries: "calls",
	} {
		stored, err := sink.PprofOf(shopPartial(), content)
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, s := range stored.SampleType {
			types = append(types, s.Type)
		}
		if got := strings.Join(types, " "); got != want {
			t.Errorf("content %b has the columns %s, want %s", content, got, want)
		}
	}
	if got := sink.ContentOf(shopPartial()); got != sink.Time|sink.Entries {
		t.Errorf("content of a partial walk: %b", got)
	}
}
