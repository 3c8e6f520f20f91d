package sink_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func comments(p *pprof.Profile) string { return strings.Join(sinktest.Sentences(p), "\n") }

// totals adds up each column of the samples of each window.
func totals(p *pprof.Profile) map[int64][]int64 {
	sums := make(map[int64][]int64)
	for _, s := range p.Sample {
		n := s.NumLabel["window"]
		if len(n) != 1 {
			n = []int64{0}
		}
		if sums[n[0]] == nil {
			sums[n[0]] = make([]int64, len(s.Value))
		}
		for i, v := range s.Value {
			sums[n[0]][i] += v
		}
	}
	return sums
}

// Each sample is in its window; everything else is of all windows together.
func TestWindows(t *testing.T) {
	late := sinktest.Shop()
	late.Comments = []string{"vmprof-agent 0.1.0", "Linux 6.12.1", "3 announcements of code or processes were lost"}
	late.Processes[1].PID = 4321
	late.Counts.Dropped = map[string]uint64{"ring_full": 1}
	early := sinktest.Shop()
	w, err := sinktest.ShopWindows(early, sinktest.ShopChained(), late)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(early.Counts, sinktest.Shop().Counts) {
		t.Errorf("a window was changed: %+v", early.Counts)
	}
	if got, want := w.Counts().Folded, uint64(141+1000+141); got != want {
		t.Errorf("%d samples were folded, want %d", got, want)
	}
	p := sinktest.MustStored(t, w)
	ms := int64(10 * time.Millisecond)
	if got, want := fmt.Sprint(totals(p)), fmt.Sprint(map[int64][]int64{1: {141, 141 * ms}, 2: {1000, 1000 * ms},
		3: {141, 141 * ms}}); got != want {
		t.Errorf("the columns add up to %s, want %s", got, want)
	}
	if p.Mapping[0].File != sinktest.Java.File {
		t.Errorf("the first mapping is %s", p.Mapping[0].File)
	}
	if p.TimeNanos != 1_700_000_000e9 || p.DurationNanos != 30e9 || p.Period != ms {
		t.Errorf("time %d, duration %d, period %d", p.TimeNanos, p.DurationNanos, p.Period)
	}
	want := []string{
		"samples: 1282, 16 lost (malformed 12, ring_full 4), 100 truncated (frame pointer 100), 16 frames without a " +
			"name",
		"event: cpu-clock, one sample per 10ms of CPU time",
		"vmprof-agent 0.1.0",
		"Linux 6.12.1",
		"3 announcements of code or processes were lost",
		"window 1: from 2023-11-14T22:13:20.000Z for 10s, samples: 141, 9 lost (malformed 6, ring_full 3), 50 " +
			"truncated (frame pointer 50), 8 frames without a name",
		"window 2: from 2023-11-14T22:13:30.000Z for 10s, samples: 1000, 0 lost, 0 truncated",
		"window 3: from 2023-11-14T22:13:40.000Z for 10s, samples: 141, 7 lost (malformed 6, ring_full 1), 50 " +
			"truncated (frame pointer 50), 8 frames without a name",
		"contexts of java (pid 1234) in window 2: chain, walked=50, linked=950, ambiguous=120, fitted=13, " +
			"unplaced=4, nodes=346, shared=10, methods=122, by-depth=995/992/870, by-site=998/995/900, " +
			"check=400/396/388/350",
		"java (pid 1234, 4321): " + sinktest.Shop().Processes[1].Notes[0],
	}
	if !slices.Equal(sinktest.Sentences(p), want) {
		t.Errorf("comments\n%s\nwant\n%s", comments(p), strings.Join(want, "\n"))
	}
	footer := sinktest.Show(t, sinktest.ViewFooter, p, nil)
	if want := "\nwindows: 3, the first from 2023-11-14T22:13:20Z for 10s; vmprof-agent compare\n  FILE compares " +
		"them\n"; !strings.Contains(footer, want) || strings.Contains(footer, "window 2") {
		t.Errorf("no %q, or every window, in\n%s", want, footer)
	}
}

// The main program is the busiest guest of all windows, whoever came first or was busiest in one.
func TestWindowsMainProgram(t *testing.T) {
	running := func(file, runtime string, samples uint64) *profile.Process {
		return &profile.Process{PID: len(file), Runtime: runtime, Executable: symbol.Mapping{File: file},
			Threads: []*profile.Thread{
				{TID: 1, Tree: sinktest.ContextTree(sinktest.Sampled{Weight: samples,
					Frames: sinktest.Stack{sinktest.Execute}})},
			}}
	}
	for _, test := range []struct {
		windows [][]*profile.Process
		want    string
	}{
		{[][]*profile.Process{{running("sh", "", 9)}, {running("sh", "", 9), running("java", "hotspot", 1)}}, "java"},
		{[][]*profile.Process{{running("a", "php", 5)}, {running("bb", "php", 2)},
			{running("a", "php", 1), running("bb", "php", 3)}}, "a"},
		{[][]*profile.Process{{}, {running("sh", "", 1)}}, "sh"},
	} {
		w := sink.NewWindows(sink.Time)
		for _, processes := range test.windows {
			if err := w.Add(&profile.Profile{Processes: processes}); err != nil {
				t.Fatal(err)
			}
		}
		if p := sinktest.MustStored(t, w); p.Mapping[0].File != test.want {
			t.Errorf("the first mapping is %s, want %s", p.Mapping[0].File, test.want)
		}
	}
}

// A column of entries appears with the first window that has some.
func TestWindowsEntries(t *testing.T) {
	w, err := sinktest.ShopWindows(sinktest.Shop(), sinktest.ShopPartial(), sinktest.Shop())
	if err != nil {
		t.Fatal(err)
	}
	p := sinktest.MustStored(t, w)
	ms := int64(10 * time.Millisecond)
	if got, want := fmt.Sprint(totals(p)), fmt.Sprint(map[int64][]int64{1: {141, 141 * ms, 0}, 2: {150, 150 * ms, 27},
		3: {141, 141 * ms, 0}}); got != want {
		t.Errorf("the columns add up to %s, want %s", got, want)
	}
	if p.SampleType[2].Type != "entries" || p.SampleType[2].Unit != "count" || p.DefaultSampleType != "cpu" {
		t.Errorf("sample type %v, default %s", p.SampleType[2], p.DefaultSampleType)
	}
}

// Calls also carry their window.
func TestWindowsOfBoth(t *testing.T) {
	w := sink.NewWindows(sink.Time | sink.CallCounts)
	for range 2 {
		if err := w.Add(sinktest.ShopBoth()); err != nil {
			t.Fatal(err)
		}
	}
	p := sinktest.MustStored(t, w)
	ms := int64(10 * time.Millisecond)
	if got, want := fmt.Sprint(totals(p)), fmt.Sprint(map[int64][]int64{1: {141, 141 * ms, 3502},
		2: {141, 141 * ms, 3502}}); got != want {
		t.Errorf("the columns add up to %s, want %s", got, want)
	}
	// two windows of 2502 and 1000
	if !strings.Contains(comments(p), "\ncalls: 5.00k estimated, engine hotspot\ncalls: 2.00k inferred") {
		t.Errorf("calls are not added up:\n%s", comments(p))
	}
}

// A recording of any length ends with a profile of bounded size.
func TestWindowsFull(t *testing.T) {
	w := sink.NewWindows(sink.Time)
	for i := range stored.MaxWindows {
		if full := i == stored.MaxWindows-1; w.Full() != full || w.Len() != i {
			t.Fatalf("after %d windows: full %v, length %d", i, w.Full(), w.Len())
		}
		p := sinktest.OfPaths(sinktest.Path{Methods: "m", Fresh: 0, Times: 1, Weight: 1})
		p.Comments = []string{fmt.Sprintf("something about %d", i)}
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add(sinktest.OfPaths()); err == nil || !strings.Contains(err.Error(), "more than 4096 windows") {
		t.Errorf("another window: %v", err)
	}
	p := sinktest.MustStored(t, w)
	if n := strings.Count(comments(p), "something about"); n > 1000 ||
		!strings.Contains(comments(p), fmt.Sprintf("\n%d comments of single windows omitted", stored.MaxWindows-n+1)) {
		t.Errorf("%d comments of windows; the last is %q", n, p.Comments[len(p.Comments)-1])
	}
	if len(totals(p)) != stored.MaxWindows {
		t.Errorf("%d windows", len(totals(p)))
	}
}

func TestWindowsErrors(t *testing.T) {
	if _, err := sink.NewWindows(sink.Time).Profile(); err == nil {
		t.Error("a profile of no windows")
	}
	p := sinktest.Shop()
	p.Processes[0].Threads[0].Tree = sinktest.ContextTree(sinktest.Sampled{Weight: 1 << 62,
		Frames: sinktest.Stack{sinktest.Execute}})
	if err := sink.NewWindows(sink.Time).Add(p); err == nil ||
		!strings.Contains(err.Error(), "window 1: convert process 77") {
		t.Errorf("too large a window: %v", err)
	}
}
