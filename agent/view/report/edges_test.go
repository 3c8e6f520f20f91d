package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestCallViewsGolden(t *testing.T) {
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, sinktest.ShopCalls()))
	sinktest.Golden(t, "calls.edges.golden", sinktest.Show(t, report.Edges, stored, nil))
	sinktest.Golden(t, "calls.methods.golden", sinktest.Show(t, report.Methods, stored, nil))
	sinktest.Golden(t, "calls.tree.golden", sinktest.Show(t, report.Tree, stored, nil))
	sinktest.Golden(t, "calls.narrow.golden", sinktest.Show(t, report.Report, stored,
		&layout.Options{N: 2, Width: 60}))
	sinktest.Golden(t, "both.golden", sinktest.Show(t, report.Report, sinktest.MustPprof(t, sinktest.ShopBoth()), nil))
	sinktest.Golden(t, "count.golden", sinktest.Show(t, report.Edges, sinktest.MustPprof(t, sinktest.ShopCounted()),
		nil))
	sinktest.Golden(t, "exact.golden", sinktest.Show(t, report.Report, sinktest.MustPprof(t, sinktest.ShopExact()),
		nil))
}

func TestCallViewsFitTerminal(t *testing.T) {
	for _, p := range []*profile.Profile{sinktest.ShopCalls(), sinktest.ShopBoth(), sinktest.ShopExact()} {
		for _, view := range []sinktest.ViewFunc{report.Report, report.Layers} {
			for _, line := range strings.Split(sinktest.Show(t, view, sinktest.MustPprof(t, p), nil), "\n") {
				if n := utf8.RuneCountInString(line); n > 79 {
					t.Errorf("line of %d columns: %s", n, line)
				}
			}
		}
	}
}

// Figure 1 of Arnold and Grove: the edges say that M calls both methods equally often.
func TestEdgesFigure1(t *testing.T) {
	m, call1, call2 := sinktest.JavaMethod("M.M()V"), sinktest.JavaMethod("M.call_1()V"),
		sinktest.JavaMethod("M.call_2()V")
	p := &profile.Profile{Processes: []*profile.Process{{PID: 1,
		Calls: []*profile.Calls{{Engine: "page", Basis: profile.Sampled, Graph: sinktest.CallGraph(
			sinktest.Called{Caller: m, Site: profile.Site{Line: 8, Offset: 100}, Callee: call1, Weight: 500},
			sinktest.Called{Caller: m, Site: profile.Site{Line: 9, Offset: 103}, Callee: call2, Weight: 500},
		)}}}}}
	got := sinktest.Show(t, report.Edges, sinktest.MustPprof(t, p), nil)
	for _, want := range []string{" 50.0%   500  [s] M.M:8 -> M.call_1\n", " 50.0%   500  [s] M.M:9 -> M.call_2\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "Virtual") {
		t.Errorf("sites of one target are shown as virtual:\n%s", got)
	}
}

// site returns a profile in which a site calls that many methods, the first most often.
func dispatch(weights ...float64) *profile.Profile {
	var list []sinktest.Called
	for i, w := range weights {
		list = append(list, sinktest.Called{Caller: sinktest.CartTotal, Site: profile.Site{Line: 42, Offset: 7},
			Callee: sinktest.JavaMethod(fmt.Sprintf("com.acme.Kind%d.price()J", i)), Weight: w})
	}
	return &profile.Profile{Processes: []*profile.Process{{PID: 1,
		Calls: []*profile.Calls{{Engine: "page", Graph: sinktest.CallGraph(list...)}}}}}
}

func TestGuardedInliningMark(t *testing.T) {
	for _, test := range []struct {
		weights []float64
		want    []string // mark and share of each target
	}{
		{[]float64{61, 39}, []string{"> 61.0%", "39.0%"}},
		{[]float64{50, 45, 5}, []string{"> 50.0%", "> 45.0%", "5.0%"}},
		{[]float64{40, 40, 20}, []string{"40.0%", "40.0%", "20.0%"}},
	} {
		got := sinktest.Show(t, report.Edges, sinktest.MustPprof(t, dispatch(test.weights...)), nil)
		_, section, _ := strings.Cut(got, "Virtual call sites\n")
		var marks []string
		for _, line := range strings.Split(section, "\n") {
			if before, _, ok := strings.Cut(line, "com.acme.Kind"); ok {
				marks = append(marks, strings.Join(strings.Fields(before), " "))
			}
		}
		if strings.Join(marks, ", ") != strings.Join(test.want, ", ") {
			t.Errorf("targets of %v: %q, want %q", test.weights, marks, test.want)
		}
		if strings.Contains(got, "a candidate for guarded") != strings.Contains(strings.Join(marks, ""), ">") {
			t.Errorf("the mark is explained where it is not used, or the other way round:\n%s", got)
		}
	}
}

// A site with very many targets does not fill the screen, unless everything is asked for.
func TestManyTargets(t *testing.T) {
	weights := make([]float64, 100)
	for i := range weights {
		weights[i] = 1
	}
	stored := sinktest.MustPprof(t, dispatch(weights...))
	if got := sinktest.Show(t, report.Edges, stored, nil); !strings.Contains(got, "92.0%  92 more targets\n") ||
		!strings.Contains(got, "80 more edges\n") {
		t.Errorf("Edges =\n%s", got)
	}
	if got := sinktest.Show(t, report.Edges, stored, new(layout.Options)); strings.Contains(got, "more") {
		t.Errorf("something is left out:\n%s", got)
	}
}

// In some languages only the line of a call is known. The view lists what the line calls, but not
// as one virtual call: none of it is a candidate for inlining.
func TestLinesWithoutOffset(t *testing.T) {
	at := func(line int32) profile.Site { return profile.Site{Line: line, Offset: -1} }
	p := dispatch()
	p.Processes[0].Calls[0].Graph = sinktest.CallGraph(
		sinktest.Called{Caller: sinktest.CartTotal, Site: at(42), Callee: sinktest.BookPrice, Weight: 60},
		sinktest.Called{Caller: sinktest.CartTotal, Site: at(42), Callee: sinktest.MapGet, Weight: 20},
		sinktest.Called{Caller: sinktest.CartTotal, Site: at(43), Callee: sinktest.MapGet, Weight: 15}, // one target
		// two, but no line
		sinktest.Called{Caller: sinktest.ShopRun, Site: at(0), Callee: sinktest.CartTotal, Weight: 4},
		sinktest.Called{Caller: sinktest.ShopRun, Site: at(0), Callee: sinktest.MapGet, Weight: 1},
	)
	stored := sinktest.Reparse(t, sinktest.MustPprof(t, p))
	got := sinktest.Show(t, report.Edges, stored, nil)
	_, section, found := strings.Cut(got, "\nLines that call several methods\n")
	want := `  share  caller:line, then the share of each target
  80.0%  com.acme.Cart.total:42, all calls of the line
           75.0%  com.acme.Book.price
           25.0%  java.util.HashMap.get
the column of a call is unknown: a line may contain one virtual call or several
  calls
unknown call site: 5.0% of the calls, for which virtual calls are unknown
`
	if !found || section != want {
		t.Errorf("Edges =\n%s\nwant at the end\n%s", got, want)
	}
	if strings.Contains(got, "Virtual call sites") || strings.Contains(got, "guarded inlining") {
		t.Errorf("a line is taken for a virtual call:\n%s", got)
	}
	for _, line := range strings.Split(sinktest.Show(t, report.Edges, stored, &layout.Options{N: 10, Width: 40}),
		"\n") {
		if strings.Contains(line, "all calls") && !strings.HasSuffix(line, ":42, all calls of the line") {
			t.Errorf("the narrow view cuts what the line is: %s", line)
		}
	}
}

// Calls with and without an offset on one line are two places.
func TestLinesBesideVirtualSites(t *testing.T) {
	p := dispatch(61, 39)
	g := p.Processes[0].Calls[0].Graph
	for _, callee := range []symbol.Frame{sinktest.BookPrice, sinktest.ToyPrice} {
		g.Add(profile.Edge{Caller: symbol.Intern(sinktest.CartTotal), Site: profile.Site{Line: 42, Offset: -1},
			Callee: symbol.Intern(callee)}, 50)
	}
	got := sinktest.Show(t, report.Edges, sinktest.MustPprof(t, p), nil)
	for _, want := range []string{
		"Virtual call sites\n  share  caller:line, then the share of each target\n  50.0%  " +
			"com.acme.Cart.total:42@7\n        >  61.0%  com.acme.Kind0.price\n",
		"  50.0%  com.acme.Cart.total:42, all calls of the line\n           50.0%  com.acme.Book.price\n           " +
			"50.0%  com.acme.Toy.price\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// As many lines are shown as edges, and the others are counted.
func TestManyLines(t *testing.T) {
	p := dispatch()
	var list []sinktest.Called
	for line := range int32(5) {
		list = append(list, sinktest.Called{Caller: sinktest.CartTotal, Site: profile.Site{Line: line + 1, Offset: -1},
			Callee: sinktest.BookPrice, Weight: 2}, sinktest.Called{Caller: sinktest.CartTotal,
			Site: profile.Site{Line: line + 1, Offset: -1}, Callee: sinktest.MapGet, Weight: 1})
	}
	p.Processes[0].Calls[0].Graph = sinktest.CallGraph(list...)
	got := sinktest.Show(t, report.Edges, sinktest.MustPprof(t, p), &layout.Options{N: 2})
	if n := strings.Count(got, "all calls of the line"); n != 2 || !strings.Contains(got, "         3 more lines\n") {
		t.Errorf("%d lines are shown, want 2 and 3 more:\n%s", n, got)
	}
}

// Calls were recorded, and there were none: that is no error.
func TestNoCallsObserved(t *testing.T) {
	empty, err := sink.Pprof(sinktest.Shop(), sink.CallCounts)
	if err != nil {
		t.Fatal(err)
	}
	const want = "No calls were observed. Without --view, report shows how much there was to observe.\n"
	for _, view := range []sinktest.ViewFunc{report.Edges, report.Layers} {
		if got := sinktest.Show(t, view, empty, nil); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := sinktest.Show(t, report.Report, empty, nil); !strings.Contains(got, "samples: ") {
		t.Errorf("the report of a window without calls is\n%s", got)
	}
}

func TestCallViewErrors(t *testing.T) {
	noCalls := "the profile has no calls: record some with vmprof-agent record -e calls"
	tooMany := sinktest.MustPprof(t, sinktest.ShopCalls())
	for i := range 100 {
		s := *tooMany.Sample[0]
		s.Label = map[string][]string{"engine": {fmt.Sprint(i)}}
		tooMany.Sample = append(tooMany.Sample, &s)
	}
	for _, test := range []struct {
		name  string
		p     *pprof.Profile
		views []sinktest.ViewFunc
		want  string
	}{
		{"time", sinktest.MustPprof(t, sinktest.Shop()), []sinktest.ViewFunc{report.Edges, report.Layers}, noCalls},
		{"of another kind", sinktest.Foreign("calls", "bytes", 1), []sinktest.ViewFunc{report.Edges, report.Layers},
			noCalls},
		{"a difference", sinktest.Foreign("calls", "count", 3, -1),
			[]sinktest.ViewFunc{report.Edges, report.Layers, report.Methods}, "negative"},
		{"wraps", sinktest.Foreign("calls", "count", 1<<62, 1<<62),
			[]sinktest.ViewFunc{report.Edges, report.Layers, report.Methods}, "63 bits"},
		{"many engines", tooMany, []sinktest.ViewFunc{report.Edges, report.Methods}, "more than 64 engines"},
	} {
		for i, view := range test.views {
			var out bytes.Buffer
			if err := view(&out, test.p, nil); err == nil || !strings.Contains(err.Error(), test.want) ||
				out.Len() > 0 {
				t.Errorf("%s: view %d = %v with %d bytes written, want %q and nothing", test.name, i, err, out.Len(),
					test.want)
			}
		}
	}
	for i, view := range []sinktest.ViewFunc{report.Edges, report.Layers, report.Methods} {
		if err := view(sinktest.BrokenPipe{}, sinktest.MustPprof(t, sinktest.ShopCalls()), nil); !errors.Is(err,
			io.ErrClosedPipe) {
			t.Errorf("view %d = %v, want %v", i, err, io.ErrClosedPipe)
		}
	}
}

// Calls that another tool wrote, without labels and with whole stacks, are shown too.
func TestEdgesOfOtherProfiles(t *testing.T) {
	p := sinktest.Foreign("calls", "count", 5)
	f, g := &pprof.Function{ID: 1, Name: "f"}, &pprof.Function{ID: 2, Name: "g"}
	inlined := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f, Line: 1}, {Function: g, Line: 7}}}
	p.Function, p.Location, p.Sample[0].Location = []*pprof.Function{f, g}, []*pprof.Location{inlined},
		[]*pprof.Location{inlined}
	if got := sinktest.Show(t, report.Edges, p, nil); !strings.Contains(got, "Hot edges: 5 calls\n") ||
		!strings.Contains(got, "100.0%     5  g:7 -> f\n") {
		t.Errorf("Edges =\n%s", got)
	}
}

// Estimated edges have their interval, and are in the order of what is certain; of those that
// nobody measured there is no number.
func TestEdgesIntervals(t *testing.T) {
	at := func(line int32) profile.Site { return profile.Site{Line: line, Offset: 1} }
	wide := sinktest.CallGraph(sinktest.Called{Caller: sinktest.ShopRun, Site: at(1), Callee: sinktest.CartTotal,
		Weight: 2_100_000})
	narrow := sinktest.CallGraph(sinktest.Called{Caller: sinktest.ShopRun, Site: at(2), Callee: sinktest.MapGet,
		Weight: 1_234_567})
	seen := sinktest.CallGraph(sinktest.Called{Caller: sinktest.ShopRun, Site: at(3), Callee: sinktest.HashCode,
		Weight: 1500})
	p := &profile.Profile{Duration: time.Second, Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{
		{Engine: "hotspot", Basis: profile.Estimated, Graph: wide, Intervals: sinktest.Within(wide, 20)},
		{Engine: "hotspot", Basis: profile.Inferred, Graph: narrow, Intervals: sinktest.Within(narrow, 1.2)},
		{Engine: "hotspot", Basis: profile.Unmeasured, Graph: seen, Intervals: sinktest.Within(seen, 1000)},
	}, Extents: []profile.Extent{{Subject: profile.SubjectCalls, What: "calls", Unit: "nanoseconds", There: 1e9,
		Observed: 0.88e9}}}}}
	got := sinktest.Show(t, report.Edges, sinktest.MustPprof(t, p), nil)
	want := `Hot edges of engine hotspot: 3.33M calls (95 %: 1.12M-48.1M) in 1.00 s
12 % of the sampled callees' time has no count
  share calls         95%  caller:line -> callee
  63.0% 2.10M 94.6k-46.6M  [e] com.acme.Shop.run:1 -> com.acme.Cart.total
  37.0% 1.23M 1.03M-1.48M  [i] com.acme.Shop.run:2 -> java.util.HashMap.get
number of calls unknown (seen in stacks or code only): 1 edge
  com.acme.Shop.run:3 -> com.acme.Item.hashCode
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// layerRows returns the lines of the matrix as fields.
func layerRows(t *testing.T, p *profile.Profile, opts *layout.Options) (rows [][]string) {
	t.Helper()
	lines := strings.Split(sinktest.Show(t, report.Layers, sinktest.MustPprof(t, p), opts), "\n")
	for _, line := range lines[2:] {
		if strings.Contains(line, "%") {
			rows = append(rows, strings.Fields(line))
		}
	}
	return rows
}

// Rows of Table 2 of Moret, Binder and Villazón: a program whose calls have these shares gives that
// row.
func TestLayersTable2(t *testing.T) {
	app, lib := sinktest.JavaMethod("org.apache.Main.run()V"),
		sinktest.JavaMethod("java.util.List.get(I)Ljava/lang/Object;")
	otherApp, otherLib := sinktest.JavaMethod("javanese.Main.run()V"),
		sinktest.JavaMethod("com.sun.crypto.Cipher.run()V")
	for _, row := range []struct {
		benchmark string
		shares    [4]float64 // App->App JDK->App App->JDK JDK->JDK
		want      []string
	}{
		{"antlr", [4]float64{58.33, 0.10, 5.49, 36.08}, []string{"58.33%", "0.10%", "5.49%", "36.08%"}},
		{"bloat", [4]float64{32.16, 14.91, 18.06, 34.87}, []string{"32.16%", "14.91%", "18.06%", "34.87%"}},
		{"db", [4]float64{0.08, 1.26, 74.68, 23.98}, []string{"0.08%", "1.26%", "74.68%", "23.98%"}},
	} {
		unknown := profile.Site{Offset: -1}
		edges := &profile.Profile{Processes: []*profile.Process{{PID: 1, Comm: row.benchmark,
			Calls: []*profile.Calls{{Engine: "hotspot", Graph: sinktest.CallGraph(
				sinktest.Called{Caller: app, Site: unknown, Callee: otherApp, Weight: 100 * row.shares[0]},
				sinktest.Called{Caller: lib, Site: unknown, Callee: app, Weight: 100 * row.shares[1]},
				sinktest.Called{Caller: app, Site: unknown, Callee: otherLib, Weight: 100 * row.shares[2]},
				sinktest.Called{Caller: otherLib, Site: unknown, Callee: lib, Weight: 100 * row.shares[3]},
			)}}}}}
		weight := func(i int) uint64 { return uint64(100*row.shares[i] + 0.5) }
		type stack = []symbol.Frame
		contexts := &profile.Profile{Unit: profile.CallCounts, Processes: []*profile.Process{{PID: 1,
			Comm: row.benchmark, Threads: []*profile.Thread{{Tree: sinktest.ContextTree(
				sinktest.Sampled{Weight: weight(0), Frames: stack{app, otherApp, lib}},
				sinktest.Sampled{Weight: weight(1), Frames: stack{app, lib, app}},
				sinktest.Sampled{Weight: weight(2), Frames: stack{lib, app}},
				sinktest.Sampled{Weight: weight(3), Frames: stack{lib, otherLib, lib, app}},
			)}}}}}
		for engine, p := range map[string]*profile.Profile{"hotspot": edges, "exact": contexts} {
			want := append(slices.Clone(row.want), "0.00%", "10000", row.benchmark, "(pid", "1),", engine)
			if got := layerRows(t, p, nil); len(got) != 1 || !slices.Equal(got[0], want) {
				t.Errorf("%s: %q, want %q", row.benchmark, got, want)
			}
		}
	}
}

// What has no name, is native, or is called by nobody is in none of the four.
func TestLayersOthers(t *testing.T) {
	native := symbol.Frame{Function: "JavaMain", Kind: symbol.KindNative, Mapping: sinktest.Libjvm}
	type stack = []symbol.Frame
	p := &profile.Profile{Unit: profile.CallCounts, Processes: []*profile.Process{{PID: 1,
		Threads: []*profile.Thread{{Tree: sinktest.ContextTree(
			sinktest.Sampled{Weight: 1, Frames: stack{sinktest.ShopRun}},
			sinktest.Sampled{Weight: 2, Frames: stack{sinktest.ShopRun, native}},
			sinktest.Sampled{Weight: 4, Frames: stack{sinktest.Nowhere, sinktest.ShopRun}},
			sinktest.Sampled{Weight: 1, Frames: nil},
			sinktest.Sampled{Weight: 8, Frames: stack{sinktest.CartTotal, sinktest.ShopRun}},
		)}}}}}
	if got := layerRows(t, p, nil); len(got) != 1 || strings.Join(got[0][:6],
		" ") != "50.00% 0.00% 0.00% 0.00% 50.00% 16" {
		t.Errorf("rows %q", got)
	}
}

func TestLayersApp(t *testing.T) {
	for _, test := range []struct {
		app  string
		want string
	}{
		{`^(?:com\.acme\.)`, "71.43% 0.00% 14.29% 14.29% 0.00%"},
		{`^(?:com\.acme\.Cart\.)`, "0.00% 14.29% 42.86% 42.86% 0.00%"},
		{`^(?:nothing)`, "0.00% 0.00% 0.00% 100.00% 0.00%"},
	} {
		unknown := profile.Site{Offset: -1}
		p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Graph: sinktest.CallGraph(
			sinktest.Called{Caller: sinktest.ShopRun, Site: unknown, Callee: sinktest.CartTotal, Weight: 1},
			sinktest.Called{Caller: sinktest.CartTotal, Site: unknown, Callee: sinktest.BookPrice, Weight: 2},
			sinktest.Called{Caller: sinktest.CartTotal, Site: unknown, Callee: sinktest.MapGet, Weight: 1},
			sinktest.Called{Caller: sinktest.MapGet, Site: unknown, Callee: sinktest.MapGet, Weight: 1},
			sinktest.Called{Caller: sinktest.ShopRun, Site: unknown, Callee: sinktest.BookPrice, Weight: 2},
		)}}}}}
		got := layerRows(t, p, &layout.Options{App: regexp.MustCompile(test.app)})
		if len(got) != 1 || strings.Join(got[0][:5], " ") != test.want {
			t.Errorf("%s: %q, want %s", test.app, got, test.want)
		}
	}
}

func TestLayersGolden(t *testing.T) {
	sinktest.Golden(t, "calls.layers.golden", sinktest.Show(t, report.Layers,
		sinktest.MustPprof(t, sinktest.ShopCalls()), nil))
	if got := sinktest.Show(t, report.Layers, sinktest.MustPprof(t, sinktest.ShopCalls()),
		&layout.Options{N: 1}); !strings.Contains(got, "1 more line\n") {
		t.Errorf("Layers =\n%s", got)
	}
}
