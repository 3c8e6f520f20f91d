package timeline_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/timeline"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// laned is a window of 10 s with lanes, in which two threads of a pool, one on its own and an idle
// one are.
func laned(pid int, start time.Time) *profile.Profile {
	causes := []string{cause.Running, cause.Idle, cause.Monitor, cause.Runnable}
	whole := func(steps, cause int) profile.LaneRun {
		return profile.LaneRun{Steps: steps, Parts: []profile.LanePart{{Cause: cause, Percent: 100}}}
	}
	lanes := &profile.Lanes{Step: time.Second, Steps: 10, Causes: causes, LeftOut: 1, Threads: []profile.Lane{
		{TID: 11, Thread: "pool-1", Runs: []profile.LaneRun{whole(5, 0), whole(5, 2)}},
		{TID: 13, Thread: "main", From: 4, Runs: []profile.LaneRun{{Steps: 3,
			Parts: []profile.LanePart{{Cause: 3, Percent: 60}, {Cause: 0, Percent: 40}}}}},
		{TID: 12, Thread: "pool-2", Runs: []profile.LaneRun{whole(8, 1), whole(2, 0)}},
		{TID: 14, Thread: "reaper", Runs: []profile.LaneRun{whole(10, 1)}},
	}}
	e := &profile.Events{Kind: profile.Wall, Lanes: lanes}
	return &profile.Profile{Start: start, Duration: 10 * time.Second,
		Processes: []*profile.Process{{PID: pid, Comm: "java", Service: "shop", Events: []*profile.Events{e}}}}
}

func lanedFile(t *testing.T, windows ...*profile.Profile) *pprof.Profile {
	t.Helper()
	if len(windows) == 1 {
		p, err := sink.Pprof(windows[0], sink.OfEvents(profile.Wall))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	w := sink.NewWindows(sink.OfEvents(profile.Wall))
	for _, p := range windows {
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	p, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func timelineOf(t *testing.T, p *pprof.Profile, opts layout.Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := timeline.Write(&out, p, &opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTimeline(t *testing.T) {
	got := timelineOf(t, lanedFile(t, laned(7, noon)), layout.Options{Width: 42})
	want := `Threads over time, 10s: 4 threads; a
  column is 333.3ms
hidden: 1 thread, idle or unknown for 98 %
  of the time; --idle shows them
without a timeline: 1 thread, because
  there were too many

thread  run 0s             5s
pool-1  50% ###############MMMMMMMMMMMMMMM
pool-2  20% ........................######
main    40%             +++++++++

marks (what fills most of a column): #
  running, + runnable, M monitor, . idle;
  run: share of the time on a CPU
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for _, tt := range []struct {
		name   string
		p      *pprof.Profile
		opts   layout.Options
		wanted []string
		absent []string
	}{
		{"idle threads", lanedFile(t, laned(7, noon)), layout.Options{Width: 42, Idle: true},
			[]string{"reaper   0% .............................."}, []string{"hidden"}},
		{"windows", lanedFile(t, laned(7, noon), laned(7, noon.Add(10*time.Second))), layout.Options{Width: 42},
			[]string{"time, 20s: 4 threads", "without a timeline: 1 thread", "pool-1  50% ########MMMMMMM########MMMMMMM"}, nil},
		{"a window", sinktest.WindowOf(t, lanedFile(t, laned(7, noon), laned(7, noon.Add(10*time.Second))), 2),
			layout.Options{Width: 42}, []string{"time, 10s", "pool-1  50% ###############M"}, nil},
		{"no room", lackingRoom(t), layout.Options{Width: 79},
			[]string{"from 10s on lanes are missing: the file had no room"}, nil},
		{"few lines", lanedFile(t, laned(7, noon)), layout.Options{Width: 79, N: 1},
			[]string{"1 more of pool-*", "1 more thread; -n 0"}, []string{"main"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := timelineOf(t, tt.p, tt.opts)
			for _, want := range tt.wanted {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			for _, absent := range tt.absent {
				if strings.Contains(got, absent) {
					t.Errorf("%q in\n%s", absent, got)
				}
			}
		})
	}
}

// lackingRoom is two windows of which the second lacks a thread.
func lackingRoom(t *testing.T) *pprof.Profile {
	t.Helper()
	p := lanedFile(t, laned(7, noon), laned(7, noon.Add(10*time.Second)))
	m, err := stored.MetadataOf(p)
	if err != nil {
		t.Fatal(err)
	}
	m.Lanes[1].Threads, m.Lanes[1].NoRoom = m.Lanes[1].Threads[:3], 1
	p.Comments = nil
	if err := m.Store(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Processes stay apart, and one can be chosen. Recordings that were added up are shown one after
// the other, if they were.
func TestTimelineOfSeveral(t *testing.T) {
	merge := func(list ...*profile.Profile) *pprof.Profile {
		var named []compare.Named
		for _, p := range list {
			named = append(named, compare.Named{Name: "dir/x", Profile: lanedFile(t, p)})
		}
		p, err := compare.Merge(named)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	two := merge(laned(7, noon), laned(8, noon))
	if got := timelineOf(t, two, layout.Options{Width: 79}); !strings.Contains(got, "java (pid 7)\n") ||
		!strings.Contains(got, "java (pid 8)\n") || !strings.Contains(got, "8 threads") {
		t.Error(got)
	}
	if got := timelineOf(t, two, layout.Options{Width: 79, PID: 8}); !strings.Contains(got, "4 threads") {
		t.Error(got)
	}
	for name, tt := range map[string]struct {
		p    *pprof.Profile
		pid  int64
		want string
	}{
		"no such process": {two, 9, "process 9 has no timeline: there are those of 7, 8"},
		"far apart": {merge(laned(7, noon), laned(7, noon.Add(time.Hour))), 0,
			"the windows are not consecutive: they have 20s, within 1h0m10s"},
		"no lanes": {lanedFile(t, &profile.Profile{Start: noon,
			Processes: []*profile.Process{{PID: 1, Events: []*profile.Events{{Kind: profile.Wall}}}}}), 0,
			"record one with -e wall"},
		"another program": {&pprof.Profile{}, 0, "record one with -e wall"},
	} {
		err := timeline.Write(&bytes.Buffer{}, tt.p, &layout.Options{PID: tt.pid})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each cause has a mark of its own.
func TestLaneMarks(t *testing.T) {
	marks := map[string]string{}
	for _, what := range append([]string{cause.Running, "something new"}, cause.All...) {
		p := laned(7, noon)
		l := p.Processes[0].Events[0].Lanes
		l.Causes[0] = what
		l.Threads = l.Threads[:1]
		text := timelineOf(t, lanedFile(t, p), layout.Options{Width: 79, Idle: true})
		_, line, _ := strings.Cut(text, "pool-1")
		mark := strings.Fields(line)[1][:1]
		if marks[mark] != "" {
			t.Errorf("%s is both %s and %s", mark, what, marks[mark])
		}
		marks[mark] = what
	}
}

// Graphs have the lanes of what they are of, and those that are kept are bounded.
func TestFlameLanes(t *testing.T) {
	flames, err := flame.Read(lanedFile(t, laned(7, noon)))
	if err != nil {
		t.Fatal(err)
	}
	other, err := flame.Read(lanedFile(t, laned(8, noon.Add(10*time.Second))))
	if err != nil {
		t.Fatal(err)
	}
	shown := func(f *flame.Graph) (starts []float64, pids []int64) {
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Lanes []struct {
				Start  float64
				PID    int64
				Thread []string
			}
		}
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		for _, l := range doc.Lanes {
			if len(l.Thread) != 4 {
				t.Errorf("%+v", l)
			}
			starts, pids = append(starts, l.Start), append(pids, l.PID)
		}
		return starts, pids
	}
	windows := flame.NewSeries(2)
	windows.Add(flames[0])
	windows.Add(other[0])
	both := windows.Sum(func(time.Time) bool { return true }, "", 0)
	if starts, pids := shown(both); len(starts) != 2 || starts[0] != float64(noon.UnixMilli()) || pids[1] != 8 {
		t.Errorf("%v, %v", starts, pids)
	}
	if _, pids := shown(both.ForService("shop", 8)); len(pids) != 1 || pids[0] != 8 {
		t.Errorf("%v", pids)
	}
	if starts, _ := shown(both.ForService("other", 0)); starts != nil {
		t.Errorf("%v", starts)
	}
	if starts, _ := shown(both.Against(flames[0])); starts != nil {
		t.Errorf("%v", starts)
	}
	if starts, _ := shown(both.Cut(1)); len(starts) != 2 {
		t.Errorf("%v", starts)
	}
}

// Only the lanes that are shown are drawn, however many a file has.
func TestHostileLanes(t *testing.T) {
	p := laned(7, noon)
	l := p.Processes[0].Events[0].Lanes
	l.Steps, l.Threads, l.Causes = profile.MaxLaneSteps, nil, nil
	run := profile.LaneRun{Steps: profile.MaxLaneSteps}
	for i := range 50 {
		l.Causes = append(l.Causes, fmt.Sprint("cause ", i))
		run.Parts = append(run.Parts, profile.LanePart{Cause: i, Percent: 2})
	}
	for i := range 1 << 16 {
		l.Threads = append(l.Threads, profile.Lane{TID: i, Thread: "x", Runs: []profile.LaneRun{run}})
	}
	if got := timelineOf(t, lanedFile(t, p), layout.Options{Width: 79, N: 20}); !strings.Contains(got,
		"more of x") {
		t.Error(got[:1000])
	}
}
