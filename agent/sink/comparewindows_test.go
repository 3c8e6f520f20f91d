package sink_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A path is the methods of a stack, outermost first, with how often samples found it.
type path struct {
	methods string
	fresh   int // frames that each of them found newly entered
	times   int
	weight  uint64 // of each sample
}

// ofPaths is a window in which these stacks were sampled.
func ofPaths(paths ...path) *profile.Profile {
	tree := new(cct.Tree[symbolize.Symbol])
	for _, p := range paths {
		var symbols []symbolize.Symbol
		for name := range strings.FieldsSeq(p.methods) {
			symbols = append([]symbolize.Symbol{symbolize.Intern(symbolize.Frame{Function: name, Kind: symbolize.KindJIT, Mapping: jit})}, symbols...)
		}
		for range p.times {
			tree.AddNew(symbols, p.fresh, p.weight)
		}
	}
	return &profile.Profile{
		Period: time.Millisecond, Event: "cpu-clock",
		Processes: []*profile.Process{{PID: 1, Comm: "java", Threads: []*profile.Thread{{TID: 1, Tree: tree}}}},
		Counts:    profile.Counts{Folded: tree.Total(), Attempted: tree.Total(), Delivered: tree.Total()},
	}
}

// precise are three windows whose likeness is computed below by hand. fresh is 0 without entries, 1 with them. Samples of
// the stacks (first letters), where the third window is twice the second:
//
//	     ma  rma  mb  mc  mbc
//	1:    1    0   2   2    1
//	2:    0    1   3   2    0
//
// Methods a, b, c have 1, 2, 3 and 1, 3, 2: off the mean by -1, 0, 1 and -1, 1, 0. The correlation is 1/2, the overlap 5/6.
// Edges ma, mb, mc, bc have 1, 2, 2, 1 and 1, 3, 2, 0: off the mean by -1/2, 1/2, 1/2, -1/2 and -1/2, 3/2, 1/2, -3/2. The
// correlation is 2/sqrt(1*5) = 0.8944, the overlap 5/6. Contexts are off their mean of 1.2 by -.2, -1.2, .8, .8, -.2 and
// -1.2, -.2, 1.8, .8, -1.2: 2.8/sqrt(2.8*6.8) = 0.6417, and the overlap is 4/6.
//
// Entries: in the first window m and ma once, mb twice; in the second r, rm, rma once, mb four times. Nodes and edges
// together are eleven things:
//
//	     node ma  rma  mb  mc  mbc   edge m  ma  mb  r  rm  rma
//	1:         1    0   2   2    1        1   1   2  0   0    0   sum 10, sum of squares 16
//	2:         0    1   3   2    0        0   0   4  1   1    1   sum 13, sum of squares 33
//
// The sum of products is 18: (18 - 130/11) / sqrt((16 - 100/11) * (33 - 169/11)) = 0.5600. The overlap is .2 for node mb,
// 2/13 for mc and .2 for edge mb: 0.5538.
func precise(t *testing.T, fresh int) *sink.Windows {
	t.Helper()
	second := func(times int) *profile.Profile {
		return ofPaths(
			path{"r m a", 3 * fresh, times, 1}, path{"m b", fresh, 3 * times, 1}, path{"m b", fresh, times, 0}, path{"m c", 0, 2 * times, 1},
		)
	}
	w, err := shopWindows(
		ofPaths(path{"m a", 2 * fresh, 1, 1}, path{"m b", fresh, 2, 1}, path{"m c", 0, 2, 1}, path{"m b c", 0, 1, 1}),
		second(1), second(2),
	)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func mustStored(t *testing.T, w *sink.Windows) *pprof.Profile {
	t.Helper()
	stored, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	return reparse(t, stored)
}

func comparedWindows(t *testing.T, p *pprof.Profile, opts *sink.CompareOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := sink.CompareWindows(&out, sink.Named{Name: "w.pb.gz", Profile: p}, opts); err != nil {
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
	narrow := &sink.CompareOptions{Width: 79}
	with, without := mustStored(t, precise(t, 1)), mustStored(t, precise(t, 0))
	if sink.HasEntries(without) || !sink.HasEntries(with) {
		t.Error("entries are where they should not be, or not where they should")
	}
	golden(t, "windows.compare.golden", comparedWindows(t, with, narrow))
	for _, test := range []struct {
		name string
		p    *pprof.Profile
		opts *sink.CompareOptions
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
		// Entries by method: m 1, a 1, b 2 and r 1, m 1, a 1, b 4: (10 - 28/4) / sqrt((6 - 16/4) * (19 - 49/4)) = 0.8165,
		// and 1/7 + 1/7 + 1/2 = 0.7857. By edge m, ma, mb and r, rm, ma, mb, where m and r have no caller:
		// (9 - 28/5) / sqrt((6 - 16/5) * (19 - 49/5)) = 0.6699, and 1/7 + 1/2. By context only mb is in both:
		// (8 - 28/6) / sqrt((6 - 16/6) * (19 - 49/6)) = 0.5547, and 1/2.
		{"entries", with, &sink.CompareOptions{SampleType: "entries"}, map[string]string{
			"1,2":  "0.8165 78.57 0.6699 64.29 0.5547 50.00",
			"2,3":  "1.0000 100.00 1.0000 100.00 1.0000 100.00",
			"mean": "0.9036 88.64 0.8185 80.18 0.7448 70.71",
		}},
		{"one row", with, &sink.CompareOptions{N: 1}, map[string]string{
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
		p := ofPaths()
		var list []called
		for i, line := range sites {
			list = append(list, called{cartTotal, profile.Site{Line: line, Offset: -1}, []symbolize.Frame{mapGet, bookPrice}[i], float64(i + 1)})
		}
		p.Processes[0].Calls = []*profile.Calls{{Engine: "page", Graph: callGraph(list...)}}
		return p
	}
	w := sink.NewWindows(sink.CallCounts)
	for _, p := range []*profile.Profile{calling(1, 2), calling(1, 3)} {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	stored := mustStored(t, w)
	for _, test := range []struct {
		ignore bool
		want   string
	}{{false, "1.0000 100.00 -1.0000 33.33"}, {true, "1.0000 100.00 1.0000 100.00"}} {
		text := comparedWindows(t, stored, &sink.CompareOptions{IgnoreSites: test.ignore})
		if got := rows(text)["1,2"]; got != test.want {
			t.Errorf("ignore sites %v: %q, want %q, in\n%s", test.ignore, got, test.want, text)
		}
	}
	// The mean of a negative correlation has no value.
	if text := comparedWindows(t, stored, nil); !strings.Contains(rows(text)["mean"], "- 33.33") || !strings.Contains(text, "where a correlation is negative") {
		t.Errorf("the mean is %q in\n%s", rows(text)["mean"], text)
	}
}

// Where weights do not vary the correlation has no value, and no part in the mean.
func TestCompareWindowsNaN(t *testing.T) {
	w, err := shopWindows(
		ofPaths(path{"m a", 0, 1, 1}, path{"m b", 0, 1, 3}), ofPaths(path{"m a", 0, 1, 1}, path{"m b", 0, 1, 3}),
		ofPaths(path{"m a", 0, 1, 2}, path{"m b", 0, 1, 2}),
	)
	if err != nil {
		t.Fatal(err)
	}
	text := comparedWindows(t, mustStored(t, w), nil)
	got := rows(text)
	if got["1,2"] != "1.0000 100.00 1.0000 100.00 1.0000 100.00" || got["2,3"] != "- 75.00 - 75.00 - 75.00" ||
		got["mean"] != "1.0000 86.60 1.0000 86.60 1.0000 86.60" || !strings.Contains(text, "- has no value") {
		t.Errorf("%v in\n%s", got, text)
	}
}

// What is left of a recording at its end is no window to compare with, unless it is all that there is.
func TestCompareWindowsShort(t *testing.T) {
	const full = 10 * time.Second
	for _, test := range []struct {
		windows []time.Duration
		want    int // rows, without the mean
	}{{[]time.Duration{full, full, full / 2}, 2}, {[]time.Duration{full, full, full/2 - 1e6}, 1}, {[]time.Duration{full, full / 9}, 1}} {
		w := sink.NewWindows(sink.Time)
		for _, d := range test.windows {
			p := ofPaths(path{"m a", 0, 1, 1}, path{"m b", 0, 1, 3})
			p.Start, p.Duration = time.Unix(1_700_000_000, 0), d
			if err := w.Add(p); err != nil {
				t.Fatal(err)
			}
		}
		text := comparedWindows(t, mustStored(t, w), nil)
		leftOut := strings.Contains(text, "window 3 is left out: it took 4.999s, and the one before 10s")
		if got := len(rows(text)) - 1; got != test.want || leftOut != (test.want < len(test.windows)-1) {
			t.Errorf("windows of %v: %d rows in\n%s", test.windows, got, text)
		}
	}
}

// numbered is a profile of another tool, with a sample of 1, 2, … in each of these windows; 0 for a sample without a number.
func numbered(windows ...int64) *pprof.Profile {
	p := storedOf(ofPaths(path{"m a", 0, 1, 1}))
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
	stored, err := sink.Pprof(p)
	if err != nil {
		panic(err)
	}
	return stored
}

func TestCompareWindowsHostile(t *testing.T) {
	var many []int64
	for n := range int64(sink.MaxWindows + 1) {
		many = append(many, n+1)
	}
	negative := numbered(1, 2)
	negative.Sample[0].Value[0] = -1
	for _, test := range []struct {
		name string
		p    *pprof.Profile
		opts sink.CompareOptions
		want string // of the error, "" for none
	}{
		{"no windows", numbered(0, 0), sink.CompareOptions{}, "name two files, or record with --window=10s"},
		{"one window", numbered(3, 3), sink.CompareOptions{}, "does not hold several windows"},
		{"negative numbers", numbered(-3, -4, 5), sink.CompareOptions{}, "does not hold several windows"},
		{"too many", numbered(many...), sink.CompareOptions{}, "more than 4096 windows"},
		{"as many as may be", numbered(many[1:]...), sink.CompareOptions{N: 1}, ""},
		{"huge numbers", numbered(1<<62, math.MaxInt64, 1), sink.CompareOptions{}, ""},
		{"a difference", negative, sink.CompareOptions{}, "negative values"},
		{"no such type", numbered(1, 2), sink.CompareOptions{SampleType: "allocs"}, "no values of type allocs"},
		{"no entries", numbered(1, 2), sink.CompareOptions{SampleType: "entries"}, "no values of type entries"},
		{"nothing", &pprof.Profile{}, sink.CompareOptions{}, "name two files"},
		{"some have no number", numbered(0, 1, 2, 0), sink.CompareOptions{}, ""},
	} {
		var out bytes.Buffer
		err := sink.CompareWindows(&out, sink.Named{Name: "w\x1b", Profile: test.p}, &test.opts)
		if (err == nil) != (test.want == "") || err != nil && (!strings.Contains(err.Error(), test.want) || out.Len() > 0) {
			t.Errorf("%s: %v with %d bytes written, want %q", test.name, err, out.Len(), test.want)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: %q would steer a terminal", test.name, &out)
		}
	}
}
