package compare_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

func compared(t *testing.T, a, b *pprof.Profile, opts *compare.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := compare.Profiles(&out, compare.Named{Name: "a.pb.gz", Profile: a},
		compare.Named{Name: "b.pb.gz", Profile: b}, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// figure1 is the program of Figure 1 of Arnold and Grove, with these weights of the calls to M,
// call_1 and call_2.
func figure1(toM, to1, to2 float64) *profile.Profile {
	run, m := sinktest.JavaMethod("Main.main()V"), sinktest.JavaMethod("Main.M()V")
	return &profile.Profile{Processes: []*profile.Process{{PID: 1,
		Calls: []*profile.Calls{{Engine: "page", Graph: sinktest.CallGraph(
			sinktest.Called{Caller: run, Site: profile.Site{Line: 3, Offset: 1}, Callee: m, Weight: toM},
			sinktest.Called{Caller: m, Site: profile.Site{Line: 8, Offset: 100},
				Callee: sinktest.JavaMethod("Main.call_1()V"), Weight: to1},
			sinktest.Called{Caller: m, Site: profile.Site{Line: 9, Offset: 103},
				Callee: sinktest.JavaMethod("Main.call_2()V"), Weight: to2},
		)}}}}}
}

func TestCompareFigure1(t *testing.T) {
	got := compared(t, sinktest.MustPprof(t, figure1(96, 3, 1)), sinktest.MustPprof(t, figure1(2, 49, 49)),
		&compare.Options{By: compare.ByEdge})
	sinktest.Golden(t, "figure1.compare.golden", got)
	for _, want := range []string{"overlap         6.00", "  3.00%   49.00%  +46.00%  Main.M:8 -> Main.call_1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestCompareGolden(t *testing.T) {
	other := sinktest.Shop()
	other.Processes[1].Threads[0].Tree = sinktest.ContextTree(
		sinktest.Sampled{Weight: 70, Frames: sinktest.Repeat(sinktest.Fib, 40, sinktest.Checkout, sinktest.CallStub,
			sinktest.Run, sinktest.JavaMain)},
		sinktest.Sampled{Weight: 25, Frames: sinktest.Repeat(sinktest.Total, 1, sinktest.Checkout, sinktest.CallStub,
			sinktest.Run, sinktest.JavaMain)},
	)
	for _, by := range []compare.By{compare.ByMethod, compare.ByEdge, compare.ByContext} {
		opts := &compare.Options{By: by, N: 5, Width: 79}
		got := compared(t, sinktest.MustPprof(t, sinktest.Shop()), sinktest.MustPprof(t, other), opts)
		sinktest.Golden(t, fmt.Sprintf("shop.compare-%v.golden", by), got)
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
		opts compare.Options
	}{
		{sinktest.Shop(), compare.Options{By: compare.ByMethod}},
		{sinktest.Shop(), compare.Options{By: compare.ByContext, SampleType: "cpu"}},
		{sinktest.ShopExact(), compare.Options{By: compare.ByContext}},
		{sinktest.ShopExact(), compare.Options{By: compare.ByEdge}},
		{sinktest.ShopCalls(), compare.Options{By: compare.ByEdge, Engine: "hotspot"}},
		{sinktest.ShopBoth(), compare.Options{By: compare.ByContext, SampleType: "samples"}},
	} {
		a, b := sinktest.MustPprof(t, test.p), sinktest.MustPprof(t, test.p)
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
		var list []sinktest.Called
		for _, s := range sites {
			list = append(list, sinktest.Called{Caller: sinktest.CartTotal,
				Site: profile.Site{Line: s[0], Offset: s[1]}, Callee: sinktest.MapGet, Weight: 1})
		}
		return sinktest.MustPprof(t, &profile.Profile{Processes: []*profile.Process{{PID: 1,
			Calls: []*profile.Calls{{Engine: "page", Graph: sinktest.CallGraph(list...)}}}}})
	}
	for _, test := range []struct {
		name   string
		a, b   sites
		ignore bool
		want   []string
	}{
		{"by offset", sites{{42, 7}, {42, 15}}, sites{{42, 7}, {42, 9}}, false,
			[]string{"overlap        50.00", "total:42@15 -> "}},
		{"ignored", sites{{42, 7}, {42, 15}}, sites{{42, 7}, {42, 9}}, true, []string{"overlap       100.00"}},
		{"by line", sites{{42, 7}, {43, 15}}, sites{{42, -1}, {43, -1}}, false,
			[]string{"overlap       100.00", "by line only: B has no offsets"}},
		{"by offset alone", sites{{0, 7}, {0, 15}}, sites{{42, 7}, {43, 15}}, false,
			[]string{"overlap       100.00", "by offset only: A has no lines"}},
		{"nothing in common", sites{{42, -1}, {43, -1}}, sites{{0, 7}, {0, 15}}, false,
			[]string{"overlap       100.00", "call sites are ignored"}},
	} {
		got := compared(t, at(test.a), at(test.b), &compare.Options{By: compare.ByEdge, IgnoreSites: test.ignore})
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", test.name, want, got)
			}
		}
	}
}

// Overloaded methods stay separate, with their signatures.
func TestCompareOverloads(t *testing.T) {
	made := func(ints, strings float64) *pprof.Profile {
		return sinktest.MustPprof(t, &profile.Profile{Processes: []*profile.Process{{PID: 1,
			Calls: []*profile.Calls{{Engine: "page", Graph: sinktest.CallGraph(
				sinktest.Called{Caller: sinktest.ShopRun, Site: profile.Site{Line: 1, Offset: 1},
					Callee: sinktest.AppendInt, Weight: ints}, sinktest.Called{Caller: sinktest.ShopRun,
					Site: profile.Site{Line: 1, Offset: 2}, Callee: sinktest.AppendStr, Weight: strings},
			)}}}}})
	}
	got := compared(t, made(3, 1), made(1, 3), nil)
	for _, want := range []string{"overlap        50.00", "-50.00%  java.lang.StringBuilder.append(I)\n",
		"+50.00%  java.lang.StringBuilder.append(Ljava/lang/String;)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestCompareErrors(t *testing.T) {
	timed, counted, several := sinktest.MustPprof(t, sinktest.Shop()), sinktest.MustPprof(t, figure1(1, 1, 1)),
		sinktest.MustPprof(t, sinktest.ShopCalls())
	empty := sinktest.MustPprof(t, &profile.Profile{})
	for _, test := range []struct {
		name string
		a, b *pprof.Profile
		opts compare.Options
		want string
	}{
		{"time and calls", timed, counted, compare.Options{},
			"a has values of type samples or cpu, b of type calls: record both in the same way"},
		{"units", sinktest.Foreign("calls", "count", 1), sinktest.Foreign("calls", "bytes", 1), compare.Options{},
			"calls is in count in a but in bytes in b"},
		{"no such type", timed, timed, compare.Options{SampleType: "allocs"},
			"a has no values of type allocs: choose samples or cpu"},
		{"not in b", timed, counted, compare.Options{SampleType: "cpu"}, "b has no values of type cpu: choose calls"},
		{"contexts of edges", counted, counted, compare.Options{By: compare.ByContext},
			"a has calls without their contexts"},
		{"several engines", counted, several, compare.Options{},
			"b has calls of the engines hotspot, page, whose weights do not add up: choose one by --engine"},
		{"no such engine", counted, several, compare.Options{Engine: "hotspot"}, "a has no calls of engine hotspot"},
		{"empty", timed, empty, compare.Options{}, "b has no samples: there is nothing to compare"},
		{"a difference", sinktest.Foreign("calls", "count", 3, -1), counted, compare.Options{},
			"read a: the profile has negative values"},
		{"no types", &pprof.Profile{}, timed, compare.Options{}, "a has values of type none"},
	} {
		var out bytes.Buffer
		err := compare.Profiles(&out, compare.Named{Name: "a", Profile: test.a},
			compare.Named{Name: "b", Profile: test.b}, &test.opts)
		if err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
			t.Errorf("%s: Compare = %v with %d bytes written, want %q and nothing", test.name, err, out.Len(),
				test.want)
		}
	}
	var out bytes.Buffer
	if _, err := compare.ParseBy("frame"); err == nil {
		t.Errorf("ParseBy takes anything")
	}
	// Where weights do not vary, the correlation has no value, and says so.
	if err := compare.Profiles(&out, compare.Named{Name: "a", Profile: counted},
		compare.Named{Name: "b", Profile: counted}, nil); err != nil || !strings.Contains(out.String(), "undefined") {
		t.Errorf("Compare = %v\n%s", err, &out)
	}
}

// Two profiles of allocations by class: the measure of Figure 11 of Inoue and Nakatani (OOPSLA
// 2009).
func TestCompareByClass(t *testing.T) {
	other := sinktest.Only(profile.Allocations)
	other.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.Allocations,
		sinktest.Event{Labels: profile.EventLabels{Class: "char[]"}, Events: 4,
			Values: [3]float64{4, 4 * sinktest.Mib}},
		sinktest.Event{Labels: profile.EventLabels{Class: "java.lang.String"}, Events: 3,
			Values: [3]float64{3, 3 * sinktest.Mib}},
		sinktest.Event{Labels: profile.EventLabels{}, Events: 3, Values: [3]float64{3, 3 * sinktest.Mib}},
	)}
	a, b := sinktest.MustPprof(t, sinktest.Only(profile.Allocations)), sinktest.MustPprof(t, other)
	got := compared(t, a, b, &compare.Options{By: compare.ByClass, Width: 79})
	for _, want := range []string{
		"Comparison of alloc_space by class\n", "A: a.pb.gz, 10.5MB allocated, 3 classes\n",
		"overlap        70.00  of 100", // 40 of char[] and 30 of java.lang.String
		" 60.00%   40.00%  -20.00%  char[]\n", "  0.00%   30.00%  +30.00%  [unknown]\n",
		" 10.00%    0.00%  -10.00%  byte[]\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	// 60000 + 90000 + 1 objects against 4 + 3 + 3: the smaller shares are 39.9997 of char[] and 30
	// of strings.
	got = compared(t, a, b, &compare.Options{By: compare.ByClass, SampleType: "alloc_objects"})
	if want := "overlap        70.00"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	got = compared(t, a, b, &compare.Options{By: compare.ByMethod})
	if want := "overlap         0.00"; !strings.Contains(got, want) ||
		!strings.Contains(got, "MemAllocator::allocate") {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// Waits for work have no part in how alike delays are.
func TestCompareLocks(t *testing.T) {
	a, b := sinktest.Only(profile.Locks), sinktest.Only(profile.Locks)
	rows := b.Processes[1].Events[0].Rows
	rows[4].Values[2] = 1 // value of waits
	for _, by := range []compare.By{compare.ByMethod, compare.ByContext, compare.ByClass} {
		got := compared(t, sinktest.MustPprof(t, a), sinktest.MustPprof(t, b), &compare.Options{By: by})
		for _, want := range []string{"Comparison of delay by", "800.00ms delay", "overlap       100.00",
			"No share differs", "omitted: waits for work\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("by %v: no %q in\n%s", by, want, got)
			}
		}
	}
}

func TestCompareByClassRefuses(t *testing.T) {
	for _, test := range []struct {
		a, b *profile.Profile
		want string
	}{
		{sinktest.Only(profile.Allocations), sinktest.Shop(),
			"a has values of type alloc_objects or alloc_space or events, b of type samples or cpu"},
		{sinktest.Shop(), sinktest.Shop(),
			"a has no events of objects, only values of type samples: --by=class needs allocations (record -e " +
				"alloc), locks (-e lock), page faults (-e page-faults) or write barriers"},
		{sinktest.Only(profile.Allocations), sinktest.Only(profile.Locks),
			"a has allocations, b has locks: compare files of one kind"},
	} {
		err := compare.Profiles(new(bytes.Buffer), compare.Named{Name: "a", Profile: sinktest.MustPprof(t, test.a)},
			compare.Named{Name: "b", Profile: sinktest.MustPprof(t, test.b)},
			&compare.Options{By: compare.ByClass})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Compare = %v, want an error with %q", err, test.want)
		}
	}
}
