package fold

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// To each window the part of a wait is added that is in it: the parts of consecutive windows add up
// to the wait.
func TestAddWait(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name string
		wait Wait
		want map[string][2]float64 // waits and seconds, by state
	}{
		{"within", Wait{Since: 12 * s, Until: 15 * s, State: cause.Blocked, Weight: 1},
			map[string][2]float64{cause.Blocked: {1, 3}}},
		{"drawn", Wait{Since: 12 * s, Until: 15 * s, State: cause.Blocked, Weight: 2.5},
			map[string][2]float64{cause.Blocked: {2.5, 7.5}}},
		{"drawn, then waits for a CPU", Wait{Since: 12 * s, Until: 15 * s, Delay: s, State: cause.Blocked, Weight: 4},
			map[string][2]float64{cause.Blocked: {4, 8}, cause.Runnable: {4, 4}}},
		{"then waits for a CPU", Wait{Since: 12 * s, Until: 15 * s, Delay: s, State: cause.Uninterruptible, Weight: 1},
			map[string][2]float64{cause.Uninterruptible: {1, 2}, cause.Runnable: {1, 1}}},
		{"preempted", Wait{Since: 12 * s, Until: 15 * s, Delay: s, State: cause.Runnable, Weight: 1},
			map[string][2]float64{cause.Runnable: {1, 3}}},
		{"throttled", Wait{Since: 12 * s, Until: 15 * s, Delay: 3 * s, State: cause.Throttled, Weight: 1},
			map[string][2]float64{cause.Throttled: {1, 3}}},
		{"began before", Wait{Since: 5 * s, Until: 15 * s, State: cause.Blocked, Weight: 1},
			map[string][2]float64{cause.Blocked: {1, 5}}},
		{"ready before", Wait{Since: 5 * s, Until: 15 * s, Delay: 6 * s, State: cause.Blocked, Weight: 1},
			map[string][2]float64{cause.Runnable: {1, 5}}},
		{"ended before", Wait{Since: 5 * s, Until: 9 * s, State: cause.Blocked, Weight: 1}, nil},
		{"longer delay than wait", Wait{Since: 12 * s, Until: 15 * s, Delay: 9 * s, State: cause.Blocked, Weight: 1},
			map[string][2]float64{cause.Runnable: {1, 3}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, p := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 7}, true)
			w := NewWindow(nil)
			w.Began = 10 * s
			state.Open(w)
			if !state.AddWait(p, 7, 0, &Event{TID: 8}, &tt.wait) {
				t.Error("no window wanted it")
			}
			got, squares, sum := map[string][2]float64{}, 0.0, 0.0
			if set := w.Events[p]; set != nil {
				for key, sums := range set.ByKind(profile.OffCPU).Rows {
					got[key.Place] = [2]float64{sums.Values[0], sums.Values[1] / float64(s)}
					squares, sum = squares+sums.Values[profile.DrawSquares], sum+sums.Values[1]
					if (key.Value == profile.Drawn) != (tt.wait.Weight > 1) {
						t.Errorf("a wait that stands for %v is %q", tt.wait.Weight, key.Value)
					}
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			// All of it was drawn together.
			if want := (1 - 1/tt.wait.Weight) * sum * sum; math.Abs(squares-want) > 1e-9*want {
				t.Errorf("a variance of %v, want %v", squares, want)
			}
			for state, want := range tt.want {
				if got[state] != want {
					t.Errorf("%s: %v, want %v", state, got[state], want)
				}
			}
		})
	}
}

// Off-CPU time is scaled by the time that was lost, not by the number of records.
func TestLostWaits(t *testing.T) {
	state, p := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 7}, true)
	w := NewWindow(nil)
	w.Began = 1
	state.Open(w)
	state.AddWait(p, 7, 0, &Event{TID: 8}, &Wait{Since: 1, Until: 1 + 9*time.Second, State: cause.Blocked, Weight: 1})
	counts := profile.EventCounts{
		Attempted: 100, Dropped: map[string]uint64{"ring_full": 99}, WaitTime: 10 * time.Second,
		WaitTimeLost: time.Second,
	}
	covered := Covered(nil, nil, 0, 0, &counts)
	e := namedBy(guest.NewProcess(p.ID), w.Events[p], &covered)[0]
	if got := time.Duration(e.Rows[0].Values[1]).Round(time.Microsecond); got != 10*time.Second {
		t.Errorf("%v in all, want 10 s", got)
	}
	if within := e.Coverage.Within(); within != float64(time.Second) {
		t.Errorf("within %v, want 1 s", time.Duration(within))
	}
}

// The frames of who ended a wait follow those of the wait, the other way round, and are named by
// the waker's own process.
func TestWakers(t *testing.T) {
	const s = time.Second
	state, p, q := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 7}, true),
		NewProcess(proc.Identity{PID: 9}, true)
	raw := func(n int, kind guest.RawKind) guest.RawFrame {
		return guest.RawFrame{Frame: bpf.Frame(n), Kind: kind}
	}
	name := func(p *Process, r guest.RawFrame, kind symbol.Kind, functions ...string) {
		var n guest.Name
		for i, f := range functions {
			n.Symbols = append(n.Symbols, symbol.Intern(symbol.Frame{Function: f, Kind: kind,
				Inlined: i < len(functions)-1}))
		}
		p.SetName(r, n)
	}
	for _, of := range []*Process{p, q} {
		name(of, raw(2, guest.RawKernel), symbol.KindKernel, "futex_wake")
	}
	name(p, raw(4, guest.RawExact), symbol.KindJIT, "Main.wait")
	name(p, raw(5, guest.RawExact), symbol.KindJIT, "Lock.release", "Main.work")
	name(q, raw(5, guest.RawExact), symbol.KindJIT, "Server.answer")
	futex := []guest.RawFrame{raw(2, guest.RawKernel), raw(5, guest.RawExact)}
	for _, tt := range []struct {
		name   string
		by     *Waker
		pids   map[int]bool
		stack  string
		labels profile.EventLabels
	}{
		{"same process", &Waker{Process: p, PID: 7, TID: 1, Thread: "pool-1", Comm: "java", Stack: futex}, nil,
			"Main.work Lock.release futex_wake [woken by pool-*] Main.wait", profile.EventLabels{Class: "pool-1"}},
		{"another process", &Waker{Process: q, PID: 9, TID: 2, Thread: "main", Comm: "server", Stack: futex}, nil,
			"Server.answer futex_wake [woken by server: main] Main.wait",
			profile.EventLabels{Class: "main", Field: "server", Offset: 9}},
		{"a process that is not in the window", &Waker{Process: q, PID: 9, TID: 2, Thread: "main", Comm: "server",
			Stack: futex}, map[int]bool{7: true},
			"futex_wake [woken by server: main] Main.wait", profile.EventLabels{Class: "main", Field: "server",
				Offset: 9}},
		{"a process that is not profiled", &Waker{PID: 9, TID: 2, Thread: "main", Comm: "server", Stack: futex[:1]},
			nil,
			"futex_wake [woken by server: main] Main.wait", profile.EventLabels{Class: "main", Field: "server",
				Offset: 9}},
		{"an interrupt", &Waker{Kernel: "timer"}, nil, "[timer] [woken by the kernel] Main.wait",
			profile.EventLabels{Class: "[timer]"}},
		{"unknown", nil, nil, "Main.wait", profile.EventLabels{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWindow(tt.pids)
			w.Began = 10 * s
			wait := Wait{Since: 12 * s, Until: 15 * s, State: cause.Blocked, Weight: 1, Waker: tt.by, Wakers: true}
			w.AddWait(state, p, 7, 0, &Event{TID: 8, Thread: "waits", Stack: []guest.RawFrame{raw(4, guest.RawExact)}},
				&wait)
			w.AddWait(state, p, 7, 0, &Event{TID: 8, Thread: "waits", Stack: []guest.RawFrame{raw(4, guest.RawExact)}},
				&wait)
			for of, set := range w.Events {
				set.Frames(func(r guest.RawFrame) {
					if _, ok := of.Requested[r]; !ok {
						t.Errorf("the name of %+v was not asked for", r)
					}
				})
			}
			w.Events[p].NameWakers()
			covered := Covered(nil, nil, 0, 0, &profile.EventCounts{})
			e := namedBy(p.Process, w.Events[p], &covered)[0]
			if len(e.Rows) != 1 || e.Rows[0].Values[1] != float64(6*s) {
				t.Fatalf("%+v", e.Rows)
			}
			var frames []string
			for _, f := range e.Tree.Stack(e.Rows[0].Context) {
				frames = append(frames, f.Function())
				if f.Inlined() {
					t.Errorf("%s is inlined in nothing", f.Function())
				}
			}
			if got := strings.Join(frames, " "); got != tt.stack {
				t.Errorf("%s, want %s", got, tt.stack)
			}
			labels := e.Rows[0].EventLabels
			labels.Place, labels.What = "", ""
			if labels != tt.labels {
				t.Errorf("%+v, want %+v", labels, tt.labels)
			}
			if reported := strings.Contains(strings.Join(e.Basis, " "),
				"the waker of 2 recorded waits (6s in total) is unknown"); reported != (tt.labels.Class == "") {
				t.Errorf("%q", e.Basis)
			}
		})
	}
}
