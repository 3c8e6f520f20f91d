package report_test

import (
	"bytes"
	"regexp"
	"strconv"
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
)

func summaryOf(t *testing.T, opts *report.SummaryOptions, files ...*pprof.Profile) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Summary(&out, files, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSummaryGolden(t *testing.T) {
	opts := &report.SummaryOptions{CPUs: 2, Next: []string{"written to x.pb.gz",
		"next: vmprof-agent report --view=tree x.pb.gz"}}
	for name, p := range map[string]*profile.Profile{"shop": sinktest.Shop(), "both": sinktest.ShopBoth(),
		"calls": sinktest.ShopCalls()} {
		sinktest.Golden(t, name+".summary.golden", summaryOf(t, opts, sinktest.MustPprof(t, p)))
	}
}

// The method that has most of the time with its callees is shown, although its own code takes none.
// Methods above it that only pass on are not, nor is the class library.
func TestSummaryWithCallees(t *testing.T) {
	p := sinktest.OfPaths(
		sinktest.Path{Methods: "java.lang.Thread.run com.shop.Main.main com.shop.Main.quote java.util.Map.get",
			Times: 1, Weight: 70},
		sinktest.Path{Methods: "java.lang.Thread.run com.shop.Main.main com.shop.Main.quote com.shop.Main.quote " +
			"[inlined]", Times: 1, Weight: 10},
		sinktest.Path{Methods: "java.lang.Thread.run com.shop.Main.main com.shop.Web.filter com.shop.Web.page " +
			"java.lang.String.concat", Times: 1, Weight: 20},
	)
	wantWithCallees(t, sinktest.MustPprof(t, p), "  0.0% 100.0%  compiled  com.shop.Main.main\n"+
		"  0.0%  80.0%  compiled  com.shop.Main.quote\n"+
		"  0.0%  20.0%  compiled  com.shop.Web.page\n")
}

// wantWithCallees wants a summary to have these rows of the application's methods, and no others.
func wantWithCallees(t *testing.T, p *pprof.Profile, want string) {
	t.Helper()
	text := summaryOf(t, nil, p)
	_, rows, found := strings.Cut(text, "with callees):\n")
	if !found || !strings.HasPrefix(rows, want+"\n") {
		t.Errorf("want\n%s in\n%s", want, text)
	}
}

// Modules that came with Python, or were installed, are not the application's.
func TestSummaryWithCalleesPython(t *testing.T) {
	p := sinktest.MustPprof(t, sinktest.OfPaths(
		sinktest.Path{Methods: "threading.Thread.run shop.serve flask.app.Flask.run shop.quote", Times: 1, Weight: 60},
		sinktest.Path{Methods: "threading.Thread.run shop.serve shop.store json.dumps", Times: 1, Weight: 40},
	))
	files := map[string]string{"threading": "/usr/lib/python3.11/threading.py", "json": "/usr/lib/python3.11/json/__init__.py",
		"flask": "/srv/venv/lib/python3.11/site-packages/flask/app.py", "shop": "/srv/shop/shop.py"}
	for _, f := range p.Function {
		module, _, _ := strings.Cut(f.Name, ".")
		f.Filename = files[module]
	}
	wantWithCallees(t, p, "  0.0% 100.0%  compiled  shop.serve\n"+
		" 60.0%  60.0%  compiled  shop.quote\n"+
		"  0.0%  40.0%  compiled  shop.store\n")
}

// manyAllocations has twelve methods that allocate objects of twelve classes, each mostly of one of
// its own.
func manyAllocations(t *testing.T) *pprof.Profile {
	p := sinktest.MustPprof(t, sinktest.Only(profile.Allocations))
	model := p.Sample[0]
	p.Comments, p.Sample = nil, nil
	objects, space, events := 0, 1, 2
	for class := range 12 {
		for method := range 12 {
			id := uint64(len(p.Function) + 1)
			f := &pprof.Function{ID: id, Name: "com.shop.M" + strconv.Itoa(method) + ".run", SystemName: "run"}
			l := &pprof.Location{ID: id, Mapping: model.Location[0].Mapping, Line: []pprof.Line{{Function: f}}}
			p.Function, p.Location = append(p.Function, f), append(p.Location, l)
			s := &pprof.Sample{Location: []*pprof.Location{l}, Value: make([]int64, len(model.Value)),
				Label: map[string][]string{"class": {"C" + strconv.Itoa(class)}}}
			bytes := int64(1) // one byte, which is shown as 0.0 %
			if class == method {
				bytes = 1_000_000 * int64(12-class)
			}
			s.Value[objects], s.Value[space], s.Value[events] = 1, bytes, 100
			p.Sample = append(p.Sample, s)
		}
	}
	return p
}

// Of many classes and methods the largest are shown, and no parts of less than 0.05 % in their
// place.
func TestSummaryOfEventsShowsTheLargest(t *testing.T) {
	text := summaryOf(t, nil, manyAllocations(t))
	for _, want := range []string{" C0\n", " C4\n", " com.shop.M0.run\n", " com.shop.M4.run\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, " 0.0%") {
		t.Errorf("rows of 0.0%% in\n%s", text)
	}
}

// Of several kinds at once, each has five rows of its own, however few lines there are.
func TestSummaryOfSeveralKinds(t *testing.T) {
	var paths []sinktest.Path
	for i := range 12 {
		paths = append(paths, sinktest.Path{Methods: "main com.shop.Leaf" + strconv.Itoa(i) + ".run", Times: 1,
			Weight: uint64(100 - i)})
	}
	cpu, alloc := sinktest.MustPprof(t, sinktest.OfPaths(paths...)), manyAllocations(t)
	for _, lines := range []int{1, 10, 24, 30} {
		text := summaryOf(t, &report.SummaryOptions{Lines: lines}, cpu, alloc, alloc, alloc)
		parts := strings.Split(text, "status: ")
		if len(parts) != 5 {
			t.Fatalf("%d statuses in\n%s", len(parts)-1, text)
		}
		for i, row := range []string{` com\.shop\.Leaf[0-9]+\.run\n`, ` C[0-9]+\n`, ` C[0-9]+\n`, ` C[0-9]+\n`} {
			if n := len(regexp.MustCompile(row).FindAllString(parts[i], -1)); n < 5 {
				t.Errorf("%d lines: kind %d has %d rows in\n%s", lines, i, n, text)
			}
		}
	}
}

// The summary of a kind fits on a terminal, and that of several in as many lines as five rows of
// each need; the marks of colors take no room.
func TestSummaryFits(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[[0-9]+m")
	shop := sinktest.MustPprof(t, sinktest.Shop())
	files := []*pprof.Profile{shop}
	for _, kind := range []profile.EventKind{profile.Allocations, profile.Locks, profile.Pauses} {
		files = append(files, sinktest.MustPprof(t, sinktest.Only(kind)))
	}
	for n := range len(files) {
		for _, width := range []int{80, 200} {
			text := summaryOf(t, &report.SummaryOptions{CPUs: 2, Width: width, Color: true,
				Next: []string{"written", "next"}}, files[:n+1]...)
			if !strings.Contains(text, "\x1b[") {
				t.Errorf("no colors in\n%s", text)
			}
			text = escape.ReplaceAllString(text, "")
			if lines := strings.Count(text, "\n"); lines > 24 && (n == 0 || lines > 15*(n+1)) {
				t.Errorf("%d files: %d lines:\n%s", n+1, lines, text)
			}
			for line := range strings.Lines(text) {
				if columns := utf8.RuneCountInString(line) - 1; columns > width {
					t.Errorf("%d columns, not %d: %s", columns, width, line)
				}
			}
		}
	}
	if plain := summaryOf(t, nil, shop); strings.Contains(plain, "\x1b") {
		t.Error(plain)
	}
}

// The status names what changes the reading.
func TestSummaryStatus(t *testing.T) {
	for want, change := range map[string]func(*profile.Profile){
		"status: good: ": func(*profile.Profile) {},
		"status: incomplete: J": func(p *profile.Profile) {
			p.Processes[0].Notes = []string{"Java frames of process 1 are missing: no vmStructs"}
		},
		"status: incomplete: 9": func(p *profile.Profile) {
			p.Counts.Dropped = map[string]uint64{"ring_full": p.Counts.Folded * 9 / 10}
		},
		"status: incomplete: a part of the history is missing: damaged": func(p *profile.Profile) {
			p.Comments = append(p.Comments, profile.MissingPart+"damaged")
		},
		"stacks are truncated": func(p *profile.Profile) { p.Counts.Truncated = map[string]uint64{"depth": p.Counts.Folded / 2} },
		"status: coarse: ":     func(p *profile.Profile) { p.Counts.Folded = 50 },
	} {
		p := sinktest.OfPaths(sinktest.Path{Methods: "m a", Times: 1, Weight: 500})
		p.Counts.Folded = 500
		change(p)
		if got := summaryOf(t, nil, sinktest.MustPprof(t, p)); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	// A call profile of few samples is coarse, however many calls they stand for; one without calls
	// has seen none.
	caller, callee := sinktest.JavaMethod("M.m()V"), sinktest.JavaMethod("M.n()V")
	calls := &profile.Profile{Processes: []*profile.Process{{PID: 1,
		Calls: []*profile.Calls{{Engine: "page", Basis: profile.Sampled, Graph: sinktest.CallGraph(
			sinktest.Called{Caller: caller, Callee: callee, Weight: 1e6})}}}}}
	calls.Counts.Folded = 35
	for want, p := range map[string]*profile.Profile{"status: coarse: only 35 samples": calls,
		"status: empty: 0 calls": {Event: "cpu-clock", Period: 1}} {
		if got := report.Status(sinktest.MustPprofOf(t, p, sink.CallCounts)); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	none := sinktest.MustPprof(t, &profile.Profile{Event: "cpu-clock", Period: 1})
	if got := summaryOf(t, nil, none); !strings.Contains(got, "used no CPU time") {
		t.Error(got)
	}
	if got := summaryOf(t, &report.SummaryOptions{Stopped: true}, none); !strings.Contains(got, "are stopped") ||
		strings.Contains(got, "used no CPU time") {
		t.Error(got)
	}
}

// A recording that follows the calls of a method says if it has none: the name may be wrong, or the
// method inlined.
func TestSummaryWithoutSlowCalls(t *testing.T) {
	const says = "status: incomplete: no call of com.acme.Shop.checkout was seen"
	p := sinktest.Only(profile.Wall)
	p.Followed = "com.acme.Shop.checkout"
	of := sink.OfEvents(profile.Wall) | sink.CallCounts | sink.Slow
	if got := summaryOf(t, nil, sinktest.MustPprofOf(t, p, of)); !strings.Contains(got, says) {
		t.Errorf("no %q in\n%s", says, got)
	}
	p.Processes[0].Slow = []profile.SlowCall{{TID: 8, Thread: "http-1", Start: p.Start, Length: time.Second,
		Parts: []profile.SlowPart{{State: "blocked", Cause: "socket", Time: 1e9}}}}
	if got := summaryOf(t, nil, sinktest.MustPprofOf(t, p, of)); strings.Contains(got, says) {
		t.Errorf("in spite of a call:\n%s", got)
	}
}

// Threads are shown by what they have in common.
func TestThreads(t *testing.T) {
	p := sinktest.OfPaths(sinktest.Path{Methods: "m a", Times: 1, Weight: 10},
		sinktest.Path{Methods: "m b", Times: 1, Weight: 30}, sinktest.Path{Methods: "m c", Times: 1, Weight: 60})
	stored := sinktest.MustPprof(t, p)
	for i, thread := range []string{"http-nio-8080-exec-1", "http-nio-8080-exec-2", "main"} {
		stored.Sample[i].Label = map[string][]string{"thread": {thread}}
		stored.Sample[i].NumLabel = map[string][]int64{"tid": {int64(i + 1)}}
	}
	got := sinktest.Show(t, report.Threads, stored, nil)
	for _, want := range []string{"60.0%  60.00ms  main (tid 3)\n", "40.0%  40.00ms  http-nio-8080-exec-*  2 threads\n",
		"30.0%  30.00ms    http-nio-8080-exec-2 (tid 2)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// The VM's own threads are one line each, unless they run Java code or methods are asked for.
func TestServiceThreads(t *testing.T) {
	p := sinktest.MustPprof(t, sinktest.Shop())
	if got := sinktest.Show(t, report.Methods, p, &layout.Options{SumVM: true}); !strings.Contains(got,
		"[GC threads]") || strings.Contains(got, "trim_queue") {
		t.Error(got)
	}
	if got := sinktest.Show(t, report.Methods, p, &layout.Options{}); strings.Contains(got, "[GC threads]") ||
		!strings.Contains(got, "trim_queue") {
		t.Error(got)
	}
	for _, s := range p.Sample {
		s.Label["thread"] = []string{"GC Thread#0"} // as an application may call a thread
	}
	if got := sinktest.Show(t, report.Methods, p, &layout.Options{SumVM: true}); !strings.Contains(got,
		"com.acme.Cart.total") {
		t.Error(got)
	}
}

// The status follows from how much there was to observe, and "there were none" is said only where
// that is known.
func TestSummaryExtents(t *testing.T) {
	allocated := func(there, observed float64, missed ...profile.Missed) profile.Extent {
		return profile.Extent{Subject: "alloc", What: "allocated bytes", Unit: "bytes", Source: "the JVM's counters",
			There: there, Observed: observed, Missed: missed}
	}
	for _, test := range []struct {
		name    string
		extents []profile.Extent
		rows    bool
		want    []string
		never   string
	}{
		{"all", []profile.Extent{allocated(100, 96)}, true, nil, "partial"},
		{"of another kind", []profile.Extent{{Subject: "lock", What: "waits", There: 9}}, true, nil, "partial"},
		{"part", []profile.Extent{allocated(293e6, 182e6, profile.Missed{Amount: 111e6, Why: "threads ended"})}, true,
			[]string{"status: partial: 62 % of allocated bytes observed (182MB of 293MB counted",
				"because threads ended (111MB)"}, "good"},
		{"just less", []profile.Extent{allocated(1000, 949)}, true, []string{"status: partial: 94 % of"}, "good"},
		{"unknown part", []profile.Extent{allocated(0, 0, profile.Missed{Why: "the field is missing"})}, true,
			[]string{"status: partial: an unknown part of allocated bytes was not observed, because\n  the field is " +
				"missing"}, "good"},
		{"nothing", []profile.Extent{allocated(293e6, 0)}, false,
			[]string{"No alloc events were recorded.\n",
				"status: nothing observed: the JVM's counters counted 293MB"}, "there were none"},
		{"none", []profile.Extent{allocated(0, 0)}, false, []string{"No alloc events were observed: there were none."},
			"partial"},
		{"not known", nil, false, []string{"whether there were any is unknown"}, "there were none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := sinktest.Only(profile.Allocations)
			p.Processes[0].Extents = test.extents
			if !test.rows {
				for _, proc := range p.Processes {
					for _, e := range proc.Events {
						e.Rows = nil
					}
				}
			}
			got := summaryOf(t, nil, sinktest.MustPprofOf(t, p, sink.OfEvents(profile.Allocations)))
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if strings.Contains(got, test.never) {
				t.Errorf("%q in\n%s", test.never, got)
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%d columns: %q", n, line)
				}
			}
		})
	}
}

// A number of calls that is only roughly known is not good.
func TestSummaryVagueCalls(t *testing.T) {
	p := sinktest.ShopCalls()
	for _, proc := range p.Processes {
		for _, c := range proc.Calls {
			if c.Basis == profile.Estimated {
				c.Intervals = sinktest.Within(c.Graph, 1.6) // the ends are 2.56 times apart
			}
		}
	}
	const want = "status: approximate: there were between "
	if got := summaryOf(t, nil, sinktest.MustPprof(t, p)); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}
