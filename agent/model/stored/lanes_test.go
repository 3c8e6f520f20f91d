package stored

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Runs are stored and read back; what is malformed is refused.
func TestLaneSteps(t *testing.T) {
	whole := func(cause int) []profile.LanePart { return []profile.LanePart{{Cause: cause, Percent: 100}} }
	for text, want := range map[string][]profile.LaneRun{
		"":   nil,
		"a":  {{Steps: 1, Parts: whole(0)}},
		"7b": {{Steps: 7, Parts: whole(1)}},
		"2a(b70a30)3()": {{Steps: 2, Parts: whole(0)}, {Steps: 1,
			Parts: []profile.LanePart{{Cause: 1, Percent: 70}, {Cause: 0, Percent: 30}}}, {Steps: 3}},
	} {
		lane := Lane{Runs: text, From: 3}
		got, err := lane.Steps(2, 10)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if back := formatRuns(got); back != text {
			t.Errorf("%q is stored as %q", text, back)
		}
	}
	for _, text := range []string{"c", "8a", "4a4b", "0a", "3", "(", "(a", "(a)", "(a0)", "(a101)", "(a60b60)",
		"(a1a1)", "a)", "<", "99999999999999999999a", "-1a"} {
		lane := Lane{Runs: text, From: 3}
		if got, err := lane.Steps(2, 10); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Threads that do not fit have no lane, and are counted.
func TestNewLanes(t *testing.T) {
	runs := []profile.LaneRun{{Steps: 12, Parts: []profile.LanePart{{Cause: 0, Percent: 100}}}}
	l := &profile.Lanes{Step: time.Second, Steps: 12, Causes: []string{"running"},
		Threads: []profile.Lane{{TID: 1, Runs: runs}, {TID: 2, Runs: runs}, {TID: 3, Runs: runs}}, LeftOut: 4}
	for _, room := range []LaneRoom{{Lanes: 9, Text: 7}, {Lanes: 2, Text: 99}} {
		got := NewLanes(&profile.Process{PID: 7}, l, time.Unix(1, 0), 0, &room)
		if len(got.Threads) != 2 || got.LeftOut != 4 || got.NoRoom != 1 || got.Threads[1].Runs != "12a" {
			t.Errorf("%+v", got)
		}
		if next := NewLanes(&profile.Process{PID: 7}, l, time.Unix(13, 0), 0, &room); len(next.Threads) != 0 ||
			next.NoRoom != 3 {
			t.Errorf("after the first that does not fit: %+v", next)
		}
	}
}

// Lanes that are malformed or too many are left out of what is read.
func TestTidyLanes(t *testing.T) {
	good := Lanes{Start: time.Unix(1, 0), Step: time.Second, Steps: 10, Causes: []string{"running"}}
	m := Metadata{Lanes: []Lanes{good, good, good, good}}
	m.Lanes[0].Threads = []Lane{{Runs: "9a"}, {Runs: "11a"}, {Runs: "b"}, {Runs: "a", From: -1},
		{Runs: strings.Repeat("a", MaxLaneText)}}
	m.Lanes[1].Step = -1
	m.Lanes[2].Start = time.Time{}
	m.Lanes[3].Steps = 1 << 40
	m.tidy()
	if len(m.Lanes) != 2 || len(m.Lanes[0].Threads) != 1 || m.Lanes[0].LeftOut != 3 || m.Lanes[0].NoRoom != 1 ||
		m.Lanes[1].Steps != profile.MaxLaneSteps {
		t.Errorf("%+v", m.Lanes)
	}
}

// A wait that goes on in the next window has the cause that is known there.
func TestJoinLanes(t *testing.T) {
	window := func(start int64, causes []string, runs ...string) Lanes {
		l := Lanes{PID: 7, Start: time.Unix(start, 0), Step: time.Second, Steps: 10, Causes: causes}
		for i, r := range runs {
			l.Threads = append(l.Threads, Lane{TID: int64(i), Runs: r})
		}
		return l
	}
	first := window(100, []string{"running", "unknown"}, "6a4b", "6a3b(b40)", "6a4b", "3b7a", "10b")
	second := window(110, []string{"socket", "running", "unknown"}, "5a5b", "10a", "10b", "10a", "10c")
	later := window(120, []string{"monitor"}, "1a", "1a", "1a", "1a", "10a")
	other := later
	other.PID = 8
	got := JoinLanes([]Lanes{second, other, first, later})
	want := [][]string{{"6a4c", "6a3c(c40)", "6a4b", "3b7a", "10d"}, {"5a5b", "10a", "10b", "10a", "10d"}}
	for i, lanes := range want {
		for j, runs := range lanes {
			if got[i].Threads[j].Runs != runs {
				t.Errorf("window %d, thread %d: %s, want %s", i, j, got[i].Threads[j].Runs, runs)
			}
		}
	}
	if !reflect.DeepEqual(got[0].Causes, []string{"running", "unknown", "socket", "monitor"}) ||
		len(first.Causes) != 2 || first.Threads[0].Runs != "6a4b" {
		t.Errorf("%q, %+v", got[0].Causes, first)
	}
	if apart := JoinLanes([]Lanes{first, later}); apart[0].Threads[0].Runs != "6a4b" {
		t.Errorf("%+v", apart[0])
	}
}

func FuzzLaneSteps(f *testing.F) {
	f.Add("40a2(b70a30)()", 0, 2, 100)
	f.Add("a(b1c99)", 3, 3, 10)
	f.Fuzz(func(t *testing.T, text string, from, causes, steps int) {
		lane := Lane{Runs: text, From: from}
		runs, err := lane.Steps(min(causes, MaxLaneCauses), min(steps, profile.MaxLaneSteps))
		if err != nil {
			if runs != nil {
				t.Error("runs and an error")
			}
			return
		}
		sum := from
		for _, r := range runs {
			sum += r.Steps
			all := 0
			for _, p := range r.Parts {
				all += p.Percent
				if p.Cause < 0 || p.Cause >= causes || p.Percent < 1 {
					t.Fatalf("%+v", p)
				}
			}
			if r.Steps < 1 || all > 100 {
				t.Fatalf("%+v", r)
			}
		}
		if sum > steps {
			t.Fatalf("%d steps of %d", sum, steps)
		}
		again := Lane{Runs: formatRuns(runs), From: from}
		if back, err := again.Steps(min(causes, MaxLaneCauses), min(steps, profile.MaxLaneSteps)); err != nil ||
			!reflect.DeepEqual(back, runs) {
			t.Errorf("%q is read back as %v, %v", again.Runs, back, err)
		}
	})
}
