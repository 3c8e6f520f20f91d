package wall

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const period = 10 * time.Millisecond

// process has one thread with that many samples in Work, an exact wait and one that was drawn.
func process(samples uint64, exact, drawn time.Duration, times ...profile.ThreadTime) *profile.Process {
	ran := &cct.Tree[symbol.Symbol]{}
	off := &profile.Events{Kind: profile.OffCPU, Tree: &cct.Tree[symbol.Symbol]{}, Times: times}
	stack := func(name string) []symbol.Symbol {
		return []symbol.Symbol{guest.Marker(name), guest.Marker("main")}
	}
	if samples > 0 {
		ran.Add(stack("work"), samples)
	}
	for name, length := range map[string]time.Duration{"exact": exact, "drawn": drawn} {
		if length == 0 {
			continue
		}
		row := profile.EventRow{
			Context: off.Tree.Add(stack(name), 1), TID: 8, Thread: "one",
			EventLabels: profile.EventLabels{Place: cause.Blocked, What: cause.Socket}, Events: 1,
		}
		row.Values[profile.OffCPU.Main()] = float64(length)
		if name == "drawn" {
			row.Value, row.Values[profile.DrawSquares] = profile.Drawn, float64(length)*float64(length)
		}
		off.Rows = append(off.Rows, row)
	}
	return &profile.Process{Threads: []*profile.Thread{{TID: 8, Name: "one", Tree: ran}},
		Events: []*profile.Events{off}}
}

// off returns the off-CPU time of a process.
func off(p *profile.Process) *profile.Events {
	if len(p.Events) == 0 {
		return &profile.Events{}
	}
	return p.Events[0]
}

// A thread's samples add up to its wall time, and each part to what is known of it.
func TestOf(t *testing.T) {
	const s = time.Second
	time8 := func(wall, on time.Duration) profile.ThreadTime {
		return profile.ThreadTime{TID: 8, Name: "one", Wall: wall, On: on}
	}
	for _, tt := range []struct {
		name string
		p    *profile.Process
		want map[string]time.Duration // by innermost frame
	}{
		{"as sampled", process(200, 5*s, 3*s, time8(10*s, 2*s)),
			map[string]time.Duration{"work": 2 * s, "exact": 5 * s, "drawn": 3 * s}},
		{"scaled", process(100, 5*s, 6*s, time8(10*s, 2*s)), map[string]time.Duration{"work": 2 * s, "exact": 5 * s,
			"drawn": 3 * s}},
		{"nothing was drawn", process(200, 5*s, 0, time8(10*s, 2*s)),
			map[string]time.Duration{"work": 2 * s, "exact": 5 * s, NotSampled: 3 * s}},
		{"no sample of CPU time", process(0, 5*s, 3*s, time8(10*s, 2*s)),
			map[string]time.Duration{NotSampled: 2 * s, "exact": 5 * s, "drawn": 3 * s}},
		{"no sample at all", process(0, 0, 0, time8(10*s, 2*s)), map[string]time.Duration{NotSampled: 10 * s}},
		{"waits that are longer than the time", process(200, 9*s, 3*s, time8(10*s, 2*s)),
			map[string]time.Duration{"work": 2 * s, "exact": 8 * s}},
		{"longer on the CPU than it existed", process(200, 0, 0, time8(10*s, 11*s)),
			map[string]time.Duration{"work": 11 * s}},
		{"ended", process(100, 5*s, 6*s), map[string]time.Duration{"work": 1 * s, "exact": 5 * s, "drawn": 6 * s}},
		{"ended, with their time", process(100, 5*s, 6*s, profile.ThreadTime{TID: profile.EndedThreads, Wall: 20 * s,
			On: 4 * s}), map[string]time.Duration{"work": 4 * s, "exact": 5 * s, "drawn": 11 * s}},
		{"no off-CPU time", &profile.Process{Threads: process(100, 0, 0).Threads},
			map[string]time.Duration{"work": 1 * s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := Events(tt.p, period)
			got := map[string]float64{}
			for _, row := range w.Rows {
				if row.TID != 8 || row.Thread != "one" {
					t.Errorf("a row of thread %d %s", row.TID, row.Thread)
				}
				frame := w.Tree.Node(row.Context).Key.Function()
				if running := frame == "work" || frame == NotSampled &&
					row.What == cause.Running; running != (row.Place == cause.Running) {
					t.Errorf("%s has the state %s", frame, row.Place)
				}
				got[frame] += row.Values[profile.Wall.Main()]
				basis, squares := "", row.Values[profile.DrawSquares]
				if frame == "work" || frame == "drawn" {
					basis = profile.Drawn
					if times := off(tt.p).Times; len(times) > 0 && times[0].TID != profile.EndedThreads {
						basis = profile.Divided
					}
				}
				if value := row.Values[profile.Wall.Main()]; row.Value != basis ||
					(squares > 0) != (basis != "" && value > 0) {
					t.Errorf("%s: %q, with a variance of %v", frame, row.Value, squares)
				}
			}
			for frame, want := range tt.want {
				if math.Abs(got[frame]-float64(want)) > 1 {
					t.Errorf("%s: %v, want %v", frame, time.Duration(got[frame]), want)
				}
				delete(got, frame)
			}
			for frame, value := range got {
				if value != 0 {
					t.Errorf("%s: %v", frame, time.Duration(value))
				}
			}
			if ended := len(tt.p.Events) == 0 || len(tt.p.Events[0].Times) == 0; ended != (w.Coverage.Within() > 0) ||
				ended != (len(w.Basis) > 0) {
				t.Errorf("an interval of %v, and notes %q", w.Coverage.Within(), w.Basis)
			}
		})
	}
}
