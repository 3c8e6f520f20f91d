package compare_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// precise are three windows whose likeness is computed below by hand. fresh is 0 without entries, 1
// with them. Samples of the stacks (first letters), where the third window is twice the second:
//
//	     ma  rma  mb  mc  mbc
//	1:    1    0   2   2    1
//	2:    0    1   3   2    0
//
// Methods a, b, c have 1, 2, 3 and 1, 3, 2: off the mean by -1, 0, 1 and -1, 1, 0. The correlation
// is 1/2, the overlap 5/6. Edges ma, mb, mc, bc have 1, 2, 2, 1 and 1, 3, 2, 0: off the mean by
// -1/2, 1/2, 1/2, -1/2 and -1/2, 3/2, 1/2, -3/2. The correlation is 2/sqrt(1*5) = 0.8944, the
// overlap 5/6. Contexts are off their mean of 1.2 by -.2, -1.2, .8, .8, -.2 and -1.2, -.2, 1.8, .8,
// -1.2: 2.8/sqrt(2.8*6.8) = 0.6417, and the overlap is 4/6.
//
// Entries: in the first window m and ma once, mb twice; in the second r, rm, rma once, mb four
// times. Nodes and edges together are eleven things:
//
//	     node ma  rma  mb  mc  mbc   edge m  ma  mb  r  rm  rma
//	1:         1    0   2   2    1        1   1   2  0   0    0   sum 10, sum of squares 16
//	2:         0    1   3   2    0        0   0   4  1   1    1   sum 13, sum of squares 33
//
// The sum of products is 18: (18 - 130/11) / sqrt((16 - 100/11) * (33 - 169/11)) = 0.5600. The
// overlap is .2 for node mb, 2/13 for mc and .2 for edge mb: 0.5538.
func precise(t *testing.T, fresh int) *sink.Windows {
	t.Helper()
	second := func(times int) *profile.Profile {
		return sinktest.OfPaths(
			sinktest.Path{Methods: "r m a", Fresh: 3 * fresh, Times: times, Weight: 1},
			sinktest.Path{Methods: "m b", Fresh: fresh, Times: 3 * times, Weight: 1},
			sinktest.Path{Methods: "m b", Fresh: fresh, Times: times, Weight: 0},
			sinktest.Path{Methods: "m c", Fresh: 0, Times: 2 * times, Weight: 1},
		)
	}
	w, err := sinktest.ShopWindows(
		sinktest.OfPaths(sinktest.Path{Methods: "m a", Fresh: 2 * fresh, Times: 1, Weight: 1},
			sinktest.Path{Methods: "m b", Fresh: fresh, Times: 2, Weight: 1},
			sinktest.Path{Methods: "m c", Fresh: 0, Times: 2, Weight: 1},
			sinktest.Path{Methods: "m b c", Fresh: 0, Times: 1, Weight: 1}),
		second(1), second(2),
	)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func comparedWindows(t *testing.T, p *pprof.Profile, opts *compare.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := compare.Windows(&out, compare.Named{Name: "w.pb.gz", Profile: p}, opts); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 79 && opts != nil && opts.Width > 0 {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
	return out.String()
}

// rows returns the cells of the table, by the first.
func rows(text string) map[string]string {
	cells := make(map[string]string)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) > 2 && strings.HasSuffix(f[0], ",") && '0' <= f[0][0] && f[0][0] <= '9':
			cells[f[0]+f[1]] = strings.Join(f[2:], " ")
		case len(f) > 1 && f[0] == "mean":
			cells[f[0]] = strings.Join(f[1:], " ")
		}
	}
	return cells
}

func TestCompareWindows(t *testing.T) {
	narrow := &compare.Options{Width: 79}
	with, without := sinktest.MustStored(t, precise(t, 1)), sinktest.MustStored(t, precise(t, 0))
	if stacks.HasEntries(without) || !stacks.HasEntries(with) {
		t.Error("entries are where they should not be, or not where they should")
	}
	sinktest.Golden(t, "windows.compare.golden", comparedWindows(t, with, narrow))
	for _, test := range []struct {
		name string
		p    *pprof.Profile
		opts *compare.Options
		want map[string]string
	}{
		{"with entries", with, narrow, map[string]string{
			"1,2":  "0.5000 83.33 0.8944 83.33 0.6417 66.67 0.5600 55.38",
			"2,3":  "1.0000 100.00 1.0000 100.00 1.0000 100.00 1.0000 100.00",
			"mean": "0.7071 91.29 0.9457 91.29 0.8011 81.65 0.7483 74.42",
		}},
		{"without", without, narrow, map[string]string{
			"1,2":  "0.5000 83.33 0.8944 83.33 0.6417 66.67",
			"2,3":  "1.0000 100.00 1.0000 100.00 1.0000 100.00",
			"mean": "0.7071 91.29 0.9457 91.29 0.8011 81.65",
		}},
		// Entries by method: m 1, a 1, b 2 and r 1, m 1, a 1, b 4: (10 - 28/4) / sqrt((6 - 16/4) *
		// (19 - 49/4)) = 0.8165, and 1/7 + 1/7 + 1/2 = 0.7857. By edge m, ma, mb and r, rm, ma, mb,
		// where m and r have no caller: (9 - 28/5) / sqrt((6 - 16/5) * (19 - 49/5)) = 0.6699, and
		// 1/7 + 1/2. By context only mb is in both: (8 - 28/6) / sqrt((6 - 16/6) * (19 - 49/6)) =
		// 0.5547, and 1/2.
		{"entries", with, &compare.Options{SampleType: "entries"}, map[string]string{
			"1,2":  "0.8165 78.57 0.6699 64.29 0.5547 50.00",
			"2,3":  "1.0000 100.00 1.0000 100.00 1.0000 100.00",
			"mean": "0.9036 88.64 0.8185 80.18 0.7448 70.71",
		}},
		{"one row", with, &compare.Options{N: 1}, map[string]string{
			"1,2":  "0.5000 83.33 0.8944 83.33 0.6417 66.67 0.5600 55.38",
			"mean": "0.7071 91.29 0.9457 91.29 0.8011 81.65 0.7483 74.42",
		}},
	} {
		text := comparedWindows(t, test.p, test.opts)
		if got := rows(text); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v, want %v, in\n%s", test.name, got, test.want, text)
		}
	}
}

// Wherever calls stand is as good for edges if sites are ignored; a call graph has no contexts.
func TestCompareWindowsOfCalls(t *testing.T) {
	calling := func(sites ...int32) *profile.Profile {
		p := sinktest.OfPaths()
		var list []sinktest.Called
		for i, line := range sites {
			list = append(list, sinktest.Called{Caller: sinktest.CartTotal, Site: profile.Site{Line: line, Offset: -1},
				Callee: []symbol.Frame{sinktest.MapGet, sinktest.BookPrice}[i], Weight: float64(i + 1)})
		}
		p.Processes[0].Calls = []*profile.Calls{{Engine: "page", Graph: sinktest.CallGraph(list...)}}
		return p
	}
	w := sink.NewWindows(sink.CallCounts)
	for _, p := range []*profile.Profile{calling(1, 2), calling(1, 3)} {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	stored := sinktest.MustStored(t, w)
	for _, test := range []struct {
		ignore bool
		want   string
	}{{false, "1.0000 100.00 -1.0000 33.33"}, {true, "1.0000 100.00 1.0000 100.00"}} {
		text := comparedWindows(t, stored, &compare.Options{IgnoreSites: test.ignore})
		if got := rows(text)["1,2"]; got != test.want {
			t.Errorf("ignore sites %v: %q, want %q, in\n%s", test.ignore, got, test.want, text)
		}
	}
	// The mean of a negative correlation has no value.
	if text := comparedWindows(t, stored, nil); !strings.Contains(rows(text)["mean"], "- 33.33") ||
		!strings.Contains(text, "if a correlation is negative") {
		t.Errorf("the mean is %q in\n%s", rows(text)["mean"], text)
	}
}

// Where weights do not vary the correlation has no value, and no part in the mean.
func TestCompareWindowsNaN(t *testing.T) {
	w, err := sinktest.ShopWindows(
		sinktest.OfPaths(sinktest.Path{Methods: "m a", Fresh: 0, Times: 1, Weight: 1},
			sinktest.Path{Methods: "m b", Fresh: 0, Times: 1, Weight: 3}),
		sinktest.OfPaths(sinktest.Path{Methods: "m a", Fresh: 0, Times: 1, Weight: 1},
			sinktest.Path{Methods: "m b", Fresh: 0, Times: 1, Weight: 3}),
		sinktest.OfPaths(sinktest.Path{Methods: "m a", Fresh: 0, Times: 1, Weight: 2},
			sinktest.Path{Methods: "m b", Fresh: 0, Times: 1, Weight: 2}),
	)
	if err != nil {
		t.Fatal(err)
	}
	text := comparedWindows(t, sinktest.MustStored(t, w), nil)
	got := rows(text)
	if got["1,2"] != "1.0000 100.00 1.0000 100.00 1.0000 100.00" || got["2,3"] != "- 75.00 - 75.00 - 75.00" ||
		got["mean"] != "1.0000 86.60 1.0000 86.60 1.0000 86.60" || !strings.Contains(text, "-: undefined") {
		t.Errorf("%v in\n%s", got, text)
	}
}

// What is left of a recording at its end is no window to compare with, unless it is all that there
// is.
func TestCompareWindowsShort(t *testing.T) {
	const full = 10 * time.Second
	for _, test := range []struct {
		windows []time.Duration
		want    int // rows, without the mean
	}{{[]time.Duration{full, full, full / 2}, 2}, {[]time.Duration{full, full, full/2 - 1e6}, 1},
		{[]time.Duration{full, full / 9}, 1}} {
		w := sink.NewWindows(sink.Time)
		for _, d := range test.windows {
			p := sinktest.OfPaths(sinktest.Path{Methods: "m a", Fresh: 0, Times: 1, Weight: 1},
				sinktest.Path{Methods: "m b", Fresh: 0, Times: 1, Weight: 3})
			p.Start, p.Duration = time.Unix(1_700_000_000, 0), d
			if err := w.Add(p); err != nil {
				t.Fatal(err)
			}
		}
		text := comparedWindows(t, sinktest.MustStored(t, w), nil)
		leftOut := strings.Contains(text, "window 3 is omitted: it took 4.999s, the previous one 10s")
		if got := len(rows(text)) - 1; got != test.want || leftOut != (test.want < len(test.windows)-1) {
			t.Errorf("windows of %v: %d rows in\n%s", test.windows, got, text)
		}
	}
}

// numbered is a profile of another tool, with a sample of 1, 2, … in each of these windows; 0 for a
// sample without a number.
func numbered(windows ...int64) *pprof.Profile {
	p := storedOf(sinktest.OfPaths(sinktest.Path{Methods: "m a", Fresh: 0, Times: 1, Weight: 1}))
	sample := p.Sample[0]
	p.Sample, p.Comments = nil, nil
	for i, n := range windows {
		s := &pprof.Sample{Location: sample.Location, Value: []int64{int64(i + 1), 0}}
		if n != 0 {
			s.NumLabel = map[string][]int64{"window": {n}}
		}
		p.Sample = append(p.Sample, s)
	}
	return p
}

func storedOf(p *profile.Profile) *pprof.Profile {
	stored, err := sink.Pprof(p, sink.ContentOf(p))
	if err != nil {
		panic(err)
	}
	return stored
}

func TestCompareWindowsHostile(t *testing.T) {
	var many []int64
	for n := range int64(stored.MaxWindows + 1) {
		many = append(many, n+1)
	}
	negative := numbered(1, 2)
	negative.Sample[0].Value[0] = -1
	for _, test := range []struct {
		name string
		p    *pprof.Profile
		opts compare.Options
		want string // text of the error, "" for none
	}{
		{"no windows", numbered(0, 0), compare.Options{}, "name two files, or record with --window=10s"},
		{"one window", numbered(3, 3), compare.Options{}, "has fewer than two windows"},
		{"negative numbers", numbered(-3, -4, 5), compare.Options{}, "has fewer than two windows"},
		{"too many", numbered(many...), compare.Options{}, "more than 4096 windows"},
		{"as many as may be", numbered(many[1:]...), compare.Options{N: 1}, ""},
		{"huge numbers", numbered(1<<62, math.MaxInt64, 1), compare.Options{}, ""},
		{"a difference", negative, compare.Options{}, "negative values"},
		{"no such type", numbered(1, 2), compare.Options{SampleType: "allocs"}, "no values of type allocs"},
		{"no entries", numbered(1, 2), compare.Options{SampleType: "entries"}, "no values of type entries"},
		{"nothing", &pprof.Profile{}, compare.Options{}, "name two files"},
		{"some have no number", numbered(0, 1, 2, 0), compare.Options{}, ""},
	} {
		var out bytes.Buffer
		err := compare.Windows(&out, compare.Named{Name: "w\x1b", Profile: test.p}, &test.opts)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) ||
			out.Len() > 0) {
			t.Errorf("%s: %v with %d bytes written, want %q", test.name, err, out.Len(), test.want)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: %q would steer a terminal", test.name, &out)
		}
	}
}

// A part of a profile is as good as a profile of its own.
func TestWindowOf(t *testing.T) {
	w, err := sinktest.ShopWindows(sinktest.Shop(), sinktest.ShopChained(), sinktest.ShopPartial())
	if err != nil {
		t.Fatal(err)
	}
	all := sinktest.MustStored(t, w)
	m, err := stored.MetadataOf(all)
	if err != nil {
		t.Fatal(err)
	}
	m.Calls = []stored.CallTotal{{Engine: "page", Calls: 7}}
	if err := m.Store(all); err != nil {
		t.Fatal(err)
	}
	all.Comments = append(all.Comments, "a comment of another tool")
	for n, single := range map[int64]*profile.Profile{1: sinktest.Shop(), 2: sinktest.ShopChained(),
		3: sinktest.ShopPartial()} {
		got, err := stacks.WindowOf(all, n)
		if err != nil {
			t.Fatal(err)
		}
		if err := got.CheckValid(); err != nil {
			t.Error(err)
		}
		single.Start = time.Unix(1_700_000_000+10*(n-1), 0)
		alone := sinktest.MustPprof(t, single)
		if got.TimeNanos != alone.TimeNanos || got.DurationNanos != alone.DurationNanos ||
			got.Comments[0] != alone.Comments[0] {
			t.Errorf("window %d: time %d, duration %d, %s", n, got.TimeNanos, got.DurationNanos, got.Comments[0])
		}
		for name, view := range map[string]sinktest.ViewFunc{"methods": report.Methods, "tree": report.Tree,
			"contexts": report.Contexts} {
			if name == "contexts" && n == 1 {
				continue
			}
			if got, want := sinktest.Show(t, view, got, nil), sinktest.Show(t, view, alone, nil); got != want {
				t.Errorf("%s of window %d:\n%s\ninstead of\n%s", name, n, got, want)
			}
		}
		m, err := stored.MetadataOf(got)
		if err != nil || len(m.Windows) != 1 || m.Windows[0].Number != n || m.Samples.Folded != single.Counts.Folded ||
			m.Calls != nil {
			t.Errorf("the metadata of window %d is %+v, %v", n, m, err)
		}
		for _, comment := range got.Comments[1:] {
			if strings.HasPrefix(comment, "samples: ") || strings.HasPrefix(comment, "calls: ") {
				t.Errorf("window %d has the account of all windows: %s", n, comment)
			}
		}
		if !slices.Contains(got.Comments, "a comment of another tool") {
			t.Errorf("window %d lacks a comment: %q", n, got.Comments)
		}
		if footer := sinktest.Show(t, sinktest.ViewFooter, got, nil); !strings.Contains(footer,
			fmt.Sprintf("\nwindow %d: from 2023-11-14T22:13:", n)) || strings.Contains(footer, "windows: ") {
			t.Errorf("the footer of window %d:\n%s", n, footer)
		}
	}
	for _, test := range []struct {
		p    *pprof.Profile
		n    int64
		want string
	}{
		{all, 4, "there is no window 4: the profile has 3, from 1 to 3"},
		{all, -1, "there is no window -1"},
		{sinktest.MustPprof(t, sinktest.Shop()), 1,
			"the profile has no windows: record some with vmprof-agent record --window=10s"},
		{numbered(7), 1, "the profile has window 7 only"},
	} {
		if got, err := stacks.WindowOf(test.p, test.n); err == nil || got != nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("WindowOf = %v, %v, want %q", got, err, test.want)
		}
	}
}

// A window in which nothing ran is one all the same.
func TestWindowOfNothing(t *testing.T) {
	w, err := sinktest.ShopWindows(sinktest.Shop(), &profile.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := stacks.WindowOf(sinktest.MustStored(t, w), 2)
	if err != nil || len(got.Sample) != 0 || got.Comments[0] != "samples: 0, 0 lost, 0 truncated" {
		t.Errorf("%v, %v", got, err)
	}
}
