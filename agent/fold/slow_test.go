package fold

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// A followed method, with one window.
type slowState struct {
	*State
	p      *Process
	window *Window
}

func newSlowState() slowState {
	state, p := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 7}, true)
	state.Slow = NewSlowCalls()
	w := NewWindow(nil)
	w.Began = time.Second
	state.Open(w)
	return slowState{state, p, w}
}

func (s slowState) wait(tid uint32, w Wait) {
	s.AddWait(s.p, 7, 0, &Event{TID: tid, Thread: "worker"}, &w)
}

func (s slowState) running(tid uint32, at time.Duration) {
	s.Slow.note(s.State, s.p, 0, tid, "", nil, slowPart{since: at, ready: at, until: at, state: cause.Running})
}

// named returns the parts of an invocation by state and whether their stack is known, in ms.
func (s slowState) named(t *testing.T, c *SlowCall) map[string]float64 {
	t.Helper()
	names := target.NewProcess(s.p.ID).Names()
	defer names.Close()
	of := c.Profile(names, time.Time{})
	sums, all := map[string]float64{}, 0.0
	for _, p := range of.Parts {
		key := p.State
		if len(p.Stack) > 0 && (p.Stack[0] == shortWaits || p.Stack[0] == notSampled) {
			key += " unknown"
		}
		sums[key] += math.Round(p.Time/1e4) / 100
		all += p.Time
	}
	if math.Abs(all-float64(of.Length)) > 1 {
		t.Errorf("parts add up to %v of %v", time.Duration(all), of.Length)
	}
	return sums
}

// The parts of an invocation add up to it: what it ran and long waits are exact, short waits are the rest.
func TestSlowParts(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	whole := SlowCall{TID: 8, From: 2 * s, To: 2*s + 100*ms, Ran: 30 * ms, RanKnown: true}
	for _, test := range []struct {
		name    string
		call    SlowCall
		waits   []Wait
		samples []time.Duration
		want    map[string]float64
	}{
		{"nothing known", whole, nil, nil, map[string]float64{"running unknown": 30, "blocked unknown": 70}},
		{"sampled", whole, nil, []time.Duration{2*s + ms, 2*s + 9*ms, 3 * s, s}, map[string]float64{"running": 30, "blocked unknown": 70}},
		{"a long wait", whole, []Wait{{Since: 2*s + 20*ms, Until: 2*s + 80*ms, State: cause.Blocked, Weight: 1}}, nil,
			map[string]float64{"running unknown": 30, "blocked": 60, "blocked unknown": 10}},
		{"then for a CPU", whole, []Wait{{Since: 2*s + 20*ms, Until: 2*s + 80*ms, Delay: 15 * ms, State: cause.Blocked, Weight: 1}}, nil,
			map[string]float64{"running unknown": 30, "blocked": 45, "runnable": 15, "blocked unknown": 10}},
		{"short waits stand for the rest", whole, []Wait{
			{Since: 2*s + 20*ms, Until: 2*s + 60*ms, State: cause.Blocked, Weight: 1},
			{Since: 2*s + 70*ms, Until: 2*s + 71*ms, State: cause.Uninterruptible, Weight: 10},
			{Since: 2*s + 75*ms, Until: 2*s + 77*ms, State: cause.Blocked, Weight: 5},
		}, nil, map[string]float64{"running unknown": 30, "blocked": 55, "uninterruptible": 15}},
		{"waits of other calls and threads", whole, []Wait{
			{Since: s, Until: 2 * s, State: cause.Blocked, Weight: 1}, {Since: 2*s + 100*ms, Until: 3 * s, State: cause.Blocked, Weight: 1},
		}, nil, map[string]float64{"running unknown": 30, "blocked unknown": 70}},
		{"more waits than room", whole, []Wait{{Since: 2 * s, Until: 2*s + 90*ms, State: cause.Blocked, Weight: 1}}, nil,
			map[string]float64{"running unknown": 30, "blocked": 70}},
		{"unknown how long it ran", SlowCall{TID: 8, From: 2 * s, To: 2*s + 100*ms}, []Wait{{Since: 2*s + 20*ms, Until: 2*s + 80*ms, State: cause.Blocked, Weight: 1}}, nil,
			map[string]float64{"running unknown": 40, "blocked": 60}},
		{"waited for a CPU, in short waits", SlowCall{TID: 8, From: 2 * s, To: 2*s + 100*ms, Ran: 30 * ms, RanKnown: true, Waited: 50 * ms}, nil, nil,
			map[string]float64{"running unknown": 30, "runnable unknown": 50, "blocked unknown": 20}},
		{"unwound before a wait", SlowCall{TID: 8, From: 2 * s, To: 3 * s, SP: 1000, End: profile.CallUnwound}, []Wait{
			{Since: 2*s + 20*ms, Until: 2*s + 80*ms, State: cause.Blocked, Weight: 1, SP: 900}, {Since: 2*s + 90*ms, Until: 3 * s, State: cause.Blocked, Weight: 1, SP: 1100},
		}, nil, map[string]float64{"running unknown": 30, "blocked": 60}},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := newSlowState()
			for _, at := range test.samples {
				state.running(8, at)
				state.running(9, at)
			}
			for _, w := range test.waits {
				state.wait(8, w)
				state.wait(9, w)
			}
			call := test.call
			call.Process = state.p
			state.Slow.Add(state.State, &call)
			calls := state.Slow.Take()
			if len(calls) != 1 {
				t.Fatalf("%d calls", len(calls))
			}
			if got := state.named(t, calls[0]); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// Of many invocations the slowest are kept, and no more; those that began before the window are of none.
func TestSlowest(t *testing.T) {
	state := newSlowState()
	var least time.Duration
	state.Slow.Full = func(l time.Duration) { least = l }
	const calls = 500
	for i := range calls {
		from := 2*time.Second + time.Duration(i)*time.Second
		length := time.Duration((i*37)%calls+1) * time.Millisecond
		state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: from, To: from + length})
	}
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: time.Second / 2, To: time.Hour})
	if want := (calls - profile.MaxSlowCalls + 1) * time.Millisecond; least != want {
		t.Errorf("at least %v, want %v", least, want)
	}
	list := state.Slow.Take()
	if len(list) != profile.MaxSlowCalls || least != 0 {
		t.Fatalf("%d calls, then at least %v", len(list), least)
	}
	for i, c := range list {
		if want := time.Duration(calls-i) * time.Millisecond; c.length() != want {
			t.Errorf("call %d took %v, want %v", i, c.length(), want)
		}
	}
}

// What a thread did is bounded: the first waits of a call with very many are forgotten, and it says so.
func TestSlowCut(t *testing.T) {
	state := newSlowState()
	from := 2 * time.Second
	for i := range 10 * maxSlowParts {
		since := from + time.Duration(i)*time.Millisecond
		state.wait(8, Wait{Since: since, Until: since + time.Millisecond/2, State: cause.Blocked, Weight: 1})
	}
	for _, thread := range state.Slow.threads {
		if len(thread.parts) > maxSlowParts {
			t.Errorf("%d parts of a thread", len(thread.parts))
		}
	}
	to := from + 10*maxSlowParts*time.Millisecond
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: from, To: to, Ran: time.Second, RanKnown: true})
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: to, To: to + time.Second})
	calls := state.Slow.Take()
	if len(calls) != 2 || !calls[0].Cut || calls[1].Cut {
		t.Errorf("%+v", calls)
	}
	state.named(t, calls[0])
}
