package sink_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

func compared(t *testing.T, a, b *pprof.Profile, opts *sink.CompareOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := sink.Compare(&out, sink.Named{Name: "a.pb.gz", Profile: a}, sink.Named{Name: "b.pb.gz", Profile: b}, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// figure1 is the program of Figure 1 of Arnold and Grove, with these weights of the calls to M, call_1 and call_2.
func figure1(toM, to1, to2 float64) *profile.Profile {
	run, m := javaMethod("Main.main()V"), javaMethod("Main.M()V")
	return &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: callGraph(
		called{run, profile.Site{Line: 3, Offset: 1}, m, toM},
		called{m, profile.Site{Line: 8, Offset: 100}, javaMethod("Main.call_1()V"), to1},
		called{m, profile.Site{Line: 9, Offset: 103}, javaMethod("Main.call_2()V"), to2},
	)}}}}}
}

func TestCompareFigure1(t *testing.T) {
	got := compared(t, mustPprof(t, figure1(96, 3, 1)), mustPprof(t, figure1(2, 49, 49)), &sink.CompareOptions{By: sink.ByEdge})
	golden(t, "figure1.compare.golden", got)
	for _, want := range []string{"overlap         6.00", "  3.00%   49.00%  +46.00%  Main.M:8 -> Main.call_1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestCompareGolden(t *testing.T) {
	other := shop()
	other.Processes[1].Threads[0].Tree = contextTree(
		sampled{70, repeat(fib, 40, checkout, callStub, run, javaMain)},
		sampled{25, repeat(total, 1, checkout, callStub, run, javaMain)},
	)
	for _, by := range []sink.By{sink.ByMethod, sink.ByEdge, sink.ByContext} {
		opts := &sink.CompareOptions{By: by, N: 5, Width: 79}
		got := compared(t, mustPprof(t, shop()), mustPprof(t, other), opts)
		golden(t, fmt.Sprintf("shop.compare-%v.golden", by), got)
		for _, line := range strings.Split(got, "\n") {
			if n := utf8.RuneCountInString(line); n > 79 {
				t.Errorf("line of %d columns: %s", n, line)
			}
		}
	}
}

// A profile is like itself, whatever it holds and however long it was recorded.
func TestCompareSame(t *testing.T) {
	for _, test := range []struct {
		p    *profile.Profile
		opts sink.CompareOptions
	}{
		{shop(), sink.CompareOptions{By: sink.ByMethod}},
		{shop(), sink.CompareOptions{By: sink.ByContext, SampleType: "cpu"}},
		{shopExact(), sink.CompareOptions{By: sink.ByContext}},
		{shopExact(), sink.CompareOptions{By: sink.ByEdge}},
		{shopCalls(), sink.CompareOptions{By: sink.ByEdge, Engine: "hotspot"}},
		{shopBoth(), sink.CompareOptions{By: sink.ByContext, SampleType: "samples"}},
	} {
		a, b := mustPprof(t, test.p), mustPprof(t, test.p)
		b.Scale(3)
		got := compared(t, a, b, &test.opts)
		for _, want := range []string{"overlap       100.00", "correlation   1.0000", "No share differs"} {
			if !strings.Contains(got, want) {
				t.Errorf("%+v: no %q in\n%s", test.opts, want, got)
			}
		}
	}
}

// Sites count, unless they are not to, or one of the profiles does not know them.
func TestCompareSites(t *testing.T) {
	type sites = [][2]int32 // line, offset
	at := func(sites sites) *pprof.Profile {
		var list []called
		for _, s := range sites {
			list = append(list, called{cartTotal, profile.Site{Line: s[0], Offset: s[1]}, mapGet, 1})
		}
		return mustPprof(t, &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: callGraph(list...)}}}}})
	}
	for _, test := range []struct {
		name   string
		a, b   sites
		ignore bool
		want   []string
	}{
		{"by offset", sites{{42, 7}, {42, 15}}, sites{{42, 7}, {42, 9}}, false, []string{"overlap        50.00", "total:42@15 -> "}},
		{"ignored", sites{{42, 7}, {42, 15}}, sites{{42, 7}, {42, 9}}, true, []string{"overlap       100.00"}},
		{"by line", sites{{42, 7}, {43, 15}}, sites{{42, -1}, {43, -1}}, false, []string{"overlap       100.00", "by line only: B has no offsets"}},
		{"by offset alone", sites{{0, 7}, {0, 15}}, sites{{42, 7}, {43, 15}}, false, []string{"overlap       100.00", "by offset only: A has no lines"}},
		{"nothing in common", sites{{42, -1}, {43, -1}}, sites{{0, 7}, {0, 15}}, false, []string{"overlap       100.00", "call sites are ignored"}},
	} {
		got := compared(t, at(test.a), at(test.b), &sink.CompareOptions{By: sink.ByEdge, IgnoreSites: test.ignore})
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", test.name, want, got)
			}
		}
	}
}

// Overloaded methods are not one method, and can be told apart.
func TestCompareOverloads(t *testing.T) {
	made := func(ints, strings float64) *pprof.Profile {
		return mustPprof(t, &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: callGraph(
			called{shopRun, profile.Site{Line: 1, Offset: 1}, appendInt, ints}, called{shopRun, profile.Site{Line: 1, Offset: 2}, appendStr, strings},
		)}}}}})
	}
	got := compared(t, made(3, 1), made(1, 3), nil)
	for _, want := range []string{"overlap        50.00", "-50.00%  java.lang.StringBuilder.append(I)\n", "+50.00%  java.lang.StringBuilder.append(Ljava/lang/String;)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestCompareErrors(t *testing.T) {
	timed, counted, several := mustPprof(t, shop()), mustPprof(t, figure1(1, 1, 1)), mustPprof(t, shopCalls())
	empty := mustPprof(t, &profile.Profile{})
	for _, test := range []struct {
		name string
		a, b *pprof.Profile
		opts sink.CompareOptions
		want string
	}{
		{"time and calls", timed, counted, sink.CompareOptions{}, "a has values of type samples or cpu, b of type calls: record both in the same way"},
		{"units", foreign("calls", "count", 1), foreign("calls", "bytes", 1), sink.CompareOptions{}, "calls is in count in a but in bytes in b"},
		{"no such type", timed, timed, sink.CompareOptions{SampleType: "allocs"}, "a has no values of type allocs: choose samples or cpu"},
		{"not in b", timed, counted, sink.CompareOptions{SampleType: "cpu"}, "b has no values of type cpu: choose calls"},
		{"contexts of edges", counted, counted, sink.CompareOptions{By: sink.ByContext}, "a has calls without their contexts"},
		{"several engines", counted, several, sink.CompareOptions{}, "b has calls of the engines hotspot, page, whose weights do not add up: choose one by --engine"},
		{"no such engine", counted, several, sink.CompareOptions{Engine: "hotspot"}, "a has no calls of engine hotspot"},
		{"empty", timed, empty, sink.CompareOptions{}, "b has no samples: there is nothing to compare"},
		{"a difference", foreign("calls", "count", 3, -1), counted, sink.CompareOptions{}, "read a: the profile has negative values"},
		{"no types", &pprof.Profile{}, timed, sink.CompareOptions{}, "a has values of type none"},
	} {
		var out bytes.Buffer
		err := sink.Compare(&out, sink.Named{Name: "a", Profile: test.a}, sink.Named{Name: "b", Profile: test.b}, &test.opts)
		if err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
			t.Errorf("%s: Compare = %v with %d bytes written, want %q and nothing", test.name, err, out.Len(), test.want)
		}
	}
	var out bytes.Buffer
	if _, err := sink.ParseBy("frame"); err == nil {
		t.Errorf("ParseBy takes anything")
	}
	// Where weights do not vary, the correlation has no value, and says so.
	if err := sink.Compare(&out, sink.Named{Name: "a", Profile: counted}, sink.Named{Name: "b", Profile: counted}, nil); err != nil || !strings.Contains(out.String(), "has no value") {
		t.Errorf("Compare = %v\n%s", err, &out)
	}
}
