package sink

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

var chain = profile.Contexts{
	Mode: profile.ContextChain, Walked: 50, Linked: 950, Ambiguous: 120, Fitted: 13, Unplaced: 4,
	Nodes: 346, Shared: 10, Methods: 122, ByDepth: [3]uint64{995, 992, 870}, BySite: [3]uint64{998, 995, 900},
}

// What is written can be read, whatever the process calls itself.
func TestContextLine(t *testing.T) {
	checked, huge := chain, chain
	checked.Check = &profile.ContextCheck{Samples: 400, Right: [3]uint64{396, 388, 350}}
	huge.Walked, huge.Nodes, huge.BySite = math.MaxUint64, math.MaxInt, [3]uint64{math.MaxUint64, 0, 1}
	for _, test := range []struct {
		line ProcessContexts
		want string
	}{
		{ProcessContexts{"java", 4711, 0, chain}, "contexts of java (pid 4711): chain, walked=50, linked=950, ambiguous=120, fitted=13, unplaced=4, nodes=346, " +
			"shared=10, methods=122, by-depth=995/992/870, by-site=998/995/900"},
		{ProcessContexts{"java", 1, 3, checked}, "contexts of java (pid 1) in window 3: chain, walked=50, linked=950, ambiguous=120, fitted=13, unplaced=4, nodes=346, " +
			"shared=10, methods=122, by-depth=995/992/870, by-site=998/995/900, check=400/396/388/350"},
		{ProcessContexts{"java", 1, 0, profile.Contexts{Mode: profile.ContextPartial, Walked: 1, Linked: 2}},
			"contexts of java (pid 1): partial, walked=1, linked=2, ambiguous=0, fitted=0, unplaced=0"},
		{ProcessContexts{"java", 1, math.MaxInt64, huge}, ""},
		{ProcessContexts{"x (pid 9): chain, walked=7", 1, 0, chain}, ""},
		{ProcessContexts{"x (pid 9) in window 4: partial, walked=7, linked=8", 1, 2, chain}, ""},
		{ProcessContexts{"contexts of y", 1, 0, checked}, ""},
	} {
		text := test.line.String()
		if test.want != "" && text != test.want {
			t.Errorf("%q, want %q", text, test.want)
		}
		if got, ok := parseContextLine(text); !ok || !reflect.DeepEqual(got, test.line) {
			t.Errorf("%q is read as %+v, %v", text, got, ok)
		}
	}
	for comm, want := range map[string]string{"": "[unknown]", "a\x1b[2J\nb": `a\x1b[2J\nb`, strings.Repeat("x", 1<<20): strings.Repeat("x", maxName-3) + "…"} {
		l := ProcessContexts{Comm: comm, PID: 1, Contexts: chain}
		if got, ok := parseContextLine(l.String()); !ok || got.Comm != want {
			t.Errorf("%.100q is read as %.100q, %v", comm, got.Comm, ok)
		}
	}
}

func TestContextLineOfOthers(t *testing.T) {
	for _, comment := range []string{
		"", "contexts", "contexts of java", "contexts of java (pid 1)", "contexts of java (pid 1): chain", "contexts of java (pid 1): chain, ",
		"contexts of java (pid 1): guess, walked=1", "contexts of java (pid 1): chain, walked", "contexts of java (pid 1): chain, walked=",
		"contexts of java (pid 1): chain, walked=1/2", "contexts of java (pid 1): chain, by-depth=1/2", "contexts of java (pid 1): chain, walked=-1",
		"contexts of java (pid 1): chain, walked=NaN", "contexts of java (pid 1): chain, walked=18446744073709551616", "contexts of java (pid 1): chain, walked=1 ",
		"contexts of java (pid 1): chain, nodes=9223372036854775808", "contexts of java (pid 1) in window 0: chain, walked=1",
		"contexts of java (pid 1) in window 9223372036854775808: chain, walked=1", "contexts of java (pid 12345678901): chain, walked=1",
		"java (pid 1): contexts of java (pid 1): chain, walked=1", "contexts of ja\nva (pid 1): chain, walked=1",
	} {
		if l, ok := parseContextLine(comment); ok {
			t.Errorf("%q is read as %+v", comment, l)
		}
	}
	// Fields of later versions are left out, and missing ones are 0.
	l, ok := parseContextLine("contexts of java (pid 1): chain, walked=7, colour=3, check=4/3/2/1")
	if want := (profile.Contexts{Mode: profile.ContextChain, Walked: 7, Check: &profile.ContextCheck{Samples: 4, Right: [3]uint64{3, 2, 1}}}); !ok || !reflect.DeepEqual(l.Contexts, want) {
		t.Errorf("read as %+v, %v", l, ok)
	}
}

func FuzzContextLine(f *testing.F) {
	l := ProcessContexts{"java", 4711, 2, chain}
	l.Check = &profile.ContextCheck{Samples: 1}
	f.Add(l.String())
	f.Add("contexts of java (pid 1): partial, walked=1, linked=2")
	f.Fuzz(func(t *testing.T, comment string) {
		l, ok := parseContextLine(comment)
		if !ok {
			return
		}
		again, ok := parseContextLine(l.String())
		l.Comm = again.Comm // made printable
		if !ok || !reflect.DeepEqual(l, again) {
			t.Errorf("%q is read as %+v, and that as %+v, %v", comment, l, again, ok)
		}
	})
}

// Counts of windows add up; what was learned goes on growing, and the trees of two programs in one window are two.
func TestSumContexts(t *testing.T) {
	line := func(comm string, pid, window int64, samples uint64, nodes int) ProcessContexts {
		l := ProcessContexts{Comm: comm, PID: pid, Window: window, Contexts: profile.Contexts{Mode: profile.ContextChain}}
		l.Walked, l.Linked, l.Ambiguous, l.Fitted, l.Unplaced = samples, 10*samples, 3*samples, 2*samples, samples
		l.ByDepth, l.BySite = [3]uint64{samples, 2 * samples, 3 * samples}, [3]uint64{4 * samples, 5 * samples, 6 * samples}
		l.Nodes, l.Shared, l.Methods = nodes, nodes/2, nodes/5
		return l
	}
	checked := line("java", 1, 2, 2, 30)
	checked.Check = &profile.ContextCheck{Samples: 5, Right: [3]uint64{4, 3, 2}}
	again := line("java", 1, 2, 3, 50)
	again.Check = &profile.ContextCheck{Samples: 1, Right: [3]uint64{1, 1, 1}}
	sums := sumContexts([]ProcessContexts{line("java", 1, 1, 1, 10), line("java", 2, 1, 7, 70), checked, again})
	want1 := line("java", 1, 2, 6, 80)
	want1.Check = &profile.ContextCheck{Samples: 6, Right: [3]uint64{5, 4, 3}}
	want2 := line("java", 2, 1, 7, 70)
	if want := []*ProcessContexts{&want1, &want2}; !reflect.DeepEqual(sums, want) {
		t.Errorf("%+v %+v", sums[0], sums[1])
	}
}

func TestWindowLine(t *testing.T) {
	for _, text := range []string{
		"window 2: from 2026-11-22T10:15:30.123Z for 10.002s, samples: 990, 0 lost, 3 truncated (frame pointer 3)",
		"window 9223372036854775807: from 0001-01-01T00:00:00.000Z for 0s, samples: 0, 0 lost, 0 truncated",
	} {
		if l, ok := parseWindowLine(text); !ok || l.String() != text {
			t.Errorf("%q is read as %+v, %v", text, l, ok)
		}
	}
	for _, text := range []string{
		"", "window", "window 0: from 2026-11-22T10:15:30.123Z for 10s, samples: 0", "window -1: from 2026-11-22T10:15:30.123Z for 10s, samples: 0",
		"window 9223372036854775808: from 2026-11-22T10:15:30.123Z for 10s, samples: 0", "window 1: from yesterday for 10s, samples: 0",
		"window 1: from 2026-13-22T10:15:30.123Z for 10s, samples: 0", "window 1: from 2026-11-22T10:15:30.123Z for NaNs, samples: 0",
		"window 1: from 2026-11-22T10:15:30.123Z for -1s, samples: 0", "window 1: from 2026-11-22T10:15:30.123Z for 1s",
	} {
		if l, ok := parseWindowLine(text); ok {
			t.Errorf("%q is read as %+v", text, l)
		}
	}
	p := &pprof.Profile{Comments: []string{
		"window 1: from 2026-11-22T10:15:30.123Z for 10s, samples: 1", "window 1: from 2026-11-22T10:15:30.123Z for 20s, samples: 2",
	}}
	if lines := windowLines(p); len(lines) != 1 || lines[1].summary != "samples: 1" {
		t.Errorf("%+v", lines)
	}
}

func FuzzWindowLine(f *testing.F) {
	f.Add("window 2: from 2026-11-22T10:15:30.123Z for 10.002s, samples: 990, 0 lost")
	f.Fuzz(func(t *testing.T, comment string) {
		if l, ok := parseWindowLine(comment); ok {
			again, ok := parseWindowLine(l.String())
			if !ok || again.number != l.number || again.summary != l.summary {
				t.Errorf("%q is read as %+v, and that as %+v, %v", comment, l, again, ok)
			}
		}
	})
}
