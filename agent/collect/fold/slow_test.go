package fold

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A followed method, with one window.
type slowState struct {
	*State
	p      *Process
	window *Window
}

func newSlowState() slowState {
	state, p := NewState(StateOptions{Submit: func(*guest.Process) {}}), NewProcess(proc.Identity{PID: 7}, true)
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
	names := guest.NewProcess(s.p.ID).Names()
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

// The parts of an invocation add up to it: what it ran and long waits are exact, short waits are
// the rest.
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
		{"sampled", whole, nil, []time.Duration{2*s + ms, 2*s + 9*ms, 3 * s, s},
			map[string]float64{"running": 30, "blocked unknown": 70}},
		{"a long wait", whole, []Wait{{Since: 2*s + 20*ms, Until: 2*s + 80*ms, State: cause.Blocked, Weight: 1}}, nil,
			map[string]float64{"running unknown": 30, "blocked": 60, "blocked unknown": 10}},
		{"then for a CPU", whole, []Wait{{Since: 2*s + 20*ms, Until: 2*s + 80*ms, Delay: 15 * ms, State: cause.Blocked,
			Weight: 1}}, nil,
			map[string]float64{"running unknown": 30, "blocked": 45, "runnable": 15, "blocked unknown": 10}},
		{"short waits stand for the rest", whole, []Wait{
			{Since: 2*s + 20*ms, Until: 2*s + 60*ms, State: cause.Blocked, Weight: 1},
			{Since: 2*s + 70*ms, Until: 2*s + 71*ms, State: cause.Uninterruptible, Weight: 10},
			{Since: 2*s + 75*ms, Until: 2*s + 77*ms, State: cause.Blocked, Weight: 5},
		}, nil, map[string]float64{"running unknown": 30, "blocked": 55, "uninterruptible": 15}},
		{"waits of other calls and threads", whole, []Wait{
			{Since: s, Until: 2 * s, State: cause.Blocked, Weight: 1},
			{Since: 2*s + 100*ms, Until: 3 * s, State: cause.Blocked, Weight: 1},
		}, nil, map[string]float64{"running unknown": 30, "blocked unknown": 70}},
		{"more waits than room", whole, []Wait{{Since: 2 * s, Until: 2*s + 90*ms, State: cause.Blocked, Weight: 1}},
			nil,
			map[string]float64{"running unknown": 30, "blocked": 70}},
		{"unknown how long it ran", SlowCall{TID: 8, From: 2 * s, To: 2*s + 100*ms},
			[]Wait{{Since: 2*s + 20*ms, Until: 2*s + 80*ms, State: cause.Blocked, Weight: 1}}, nil,
			map[string]float64{"running unknown": 40, "blocked": 60}},
		{"waited for a CPU, in short waits", SlowCall{TID: 8, From: 2 * s, To: 2*s + 100*ms, Ran: 30 * ms,
			RanKnown: true, Waited: 50 * ms}, nil, nil,
			map[string]float64{"running unknown": 30, "runnable unknown": 50, "blocked unknown": 20}},
		{"unwound before a wait", SlowCall{TID: 8, From: 2 * s, To: 3 * s, SP: 1000, End: profile.CallUnwound}, []Wait{
			{Since: 2*s + 20*ms, Until: 2*s + 80*ms, State: cause.Blocked, Weight: 1, SP: 900},
			{Since: 2*s + 90*ms, Until: 3 * s, State: cause.Blocked, Weight: 1, SP: 1100},
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
			calls := state.window.Slow
			if len(calls) != 1 {
				t.Fatalf("%d calls", len(calls))
			}
			if got := state.named(t, calls[0]); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// Of many invocations the slowest are kept, and no more; those that began before the recording are
// left out.
func TestSlowest(t *testing.T) {
	state := newSlowState()
	var least time.Duration
	state.Slow.Full, state.Slow.Since = func(l time.Duration) { least = l }, time.Second
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
	list := state.window.Slow
	if len(list) != profile.MaxSlowCalls {
		t.Fatalf("%d calls", len(list))
	}
	for i, c := range list {
		if want := time.Duration(calls-i) * time.Millisecond; c.length() != want {
			t.Errorf("call %d took %v, want %v", i, c.length(), want)
		}
	}
}

// What a thread did is bounded: the first waits of a call with very many are forgotten, and it says
// so.
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
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: from, To: to, Ran: time.Second,
		RanKnown: true})
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: to, To: to + time.Second})
	calls := state.window.Slow
	if len(calls) != 2 || !calls[0].Cut || calls[1].Cut {
		t.Errorf("%+v", calls)
	}
	state.named(t, calls[0])
}

func (s slowState) open(began time.Duration) *Window {
	w := NewWindow(nil)
	w.Began = began
	s.Open(w)
	return w
}

// An invocation is in the windows that are open when it ends, with all that its thread did in it.
// The kernel side leaves out what no window has room for.
func TestSlowOfWindows(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	state := newSlowState()
	var least time.Duration
	state.Slow.Full = func(l time.Duration) { least = l }
	state.wait(8, Wait{Since: 2 * s, Until: 3 * s, State: cause.Blocked, Weight: 1})
	call := SlowCall{Process: state.p, TID: 8, From: 2 * s, To: 11 * s, Ran: 6 * s, RanKnown: true}
	state.wait(8, Wait{Since: 9 * s, Until: 10 * s, State: cause.Blocked, Weight: 1, Away: true})
	first := state.window
	first.Ended, first.Continued = 10*s, true
	running := call
	running.To = first.Ended
	state.Slow.Unfinished(state.State, first, &running)
	pulled := state.open(8 * s) // by somebody, while windows follow one another
	state.Slow.Unfinished(state.State, pulled, &running)
	state.Close(first)
	state.Close(pulled)
	if len(first.Slow) != 0 || len(pulled.Slow) != 1 || pulled.Slow[0].End != profile.CallRunning {
		t.Fatalf("before it has ended: %d calls, and %d of the last window", len(first.Slow), len(pulled.Slow))
	}
	if got, want := fmt.Sprint(state.named(t, pulled.Slow[0])), "map[blocked:2000 running unknown:6000]"; got != want {
		t.Errorf("before it has ended: %v, want %v", got, want)
	}
	second := state.open(10 * s)
	state.wait(8, Wait{Since: 9 * s, Until: 10*s + 500*ms, State: cause.Blocked, Weight: 1})
	state.Slow.Add(state.State, &call)
	if len(second.Slow) != 1 {
		t.Fatalf("%d calls", len(second.Slow))
	}
	if got, want := fmt.Sprint(state.named(t,
		second.Slow[0])), "map[blocked:2500 blocked unknown:500 running unknown:6000]"; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	for i := range time.Duration(profile.MaxSlowCalls) {
		state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: 12*s + i*s, To: 12*s + i*s + ms})
	}
	if least != ms {
		t.Errorf("at least %v", least)
	}
	other := state.open(40 * s)
	if least != 0 {
		t.Errorf("with an empty window: at least %v", least)
	}
	state.release(other)
	if least != ms {
		t.Errorf("without it: at least %v", least)
	}
	if state.release(second); least != 0 || second.Slow != nil {
		t.Errorf("without windows: at least %v, %d calls", least, len(second.Slow))
	}
}

// An invocation whose return was not seen, and that its thread has left, is over at the end of the
// window. It counts once.
func TestSlowLeft(t *testing.T) {
	const s = time.Second
	state := newSlowState()
	inside := func(to time.Duration) *SlowCall {
		return &SlowCall{Process: state.p, TID: 8, From: 2 * s, To: to, SP: 1000}
	}
	state.wait(8, Wait{Since: 3 * s, Until: 4 * s, State: cause.Blocked, Weight: 1, SP: 1200})
	first := state.window
	first.Continued = true
	state.Slow.Unfinished(state.State, first, inside(5*s))
	state.Close(first)
	if len(first.Slow) != 1 || first.Slow[0].End != profile.CallUnwound || first.Slow[0].length() != s {
		t.Fatalf("%+v", first.Slow)
	}
	second := state.open(5 * s)
	state.Slow.Unfinished(state.State, second, inside(6*s))
	unwound := inside(7 * s)
	unwound.End = profile.CallUnwound
	state.Slow.Add(state.State, unwound)
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 8, From: 7 * s, To: 8 * s})
	if len(second.Slow) != 1 || second.Slow[0].From != 7*s {
		t.Errorf("then %+v", second.Slow)
	}
}

// What no invocation needs any more is forgotten, and what one needs is not.
func TestSlowForget(t *testing.T) {
	const s = time.Second
	state := newSlowState()
	frame := func(i int) []guest.RawFrame { return []guest.RawFrame{{Frame: 1 << 40}, {Frame: bpf.Frame(i)}} }
	wait := func(tid uint32, i int, since time.Duration) {
		state.AddWait(state.p, 7, 0, &Event{TID: tid, Thread: "worker", Stack: frame(i)},
			&Wait{Since: since, Until: since + s, State: cause.Blocked, Weight: 1})
	}
	for i := range 100 {
		wait(8, 1+i, s) // in no invocation
		wait(9, 200+i, s)
	}
	wait(9, 400, 10*s) // in one, since 9 s
	state.Slow.Forget(20*s, map[uint32]time.Duration{9: 9 * s})
	if tree := state.Slow.trees[state.p]; len(state.Slow.threads) != 1 || tree.Len() != 2 {
		t.Errorf("%d threads, %d contexts", len(state.Slow.threads), tree.Len())
	}
	wait(9, 500, 21*s)
	state.Slow.Add(state.State, &SlowCall{Process: state.p, TID: 9, From: 9 * s, To: 22 * s, Ran: 11 * s,
		RanKnown: true})
	kept := state.window.Slow[0]
	var innermost []bpf.Frame
	for _, p := range kept.parts {
		innermost = append(innermost, kept.tree.Stack(p.context)[1].Frame)
	}
	if !slices.Equal(innermost, []bpf.Frame{400, 500}) {
		t.Errorf("frames %v", innermost)
	}
	needed := map[guest.RawFrame]bool{}
	state.window.frames(state.p, func(f guest.RawFrame) { needed[f] = true })
	if !needed[frame(400)[1]] || !needed[frame(500)[1]] {
		t.Errorf("frames %v", needed)
	}
	wait(9, 600, 30*s)
	state.Retire(state.p)
	state.Submit()
	if len(state.Slow.trees) != 0 || len(state.Slow.threads) != 0 {
		t.Errorf("of a process that has ended: %d trees, %d threads", len(state.Slow.trees), len(state.Slow.threads))
	}
}
