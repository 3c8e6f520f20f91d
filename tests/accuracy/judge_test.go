package main

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// stack is a stack of Java methods, outermost first below the thread's entry frame, unless it
// begins with a marker.
func stack(count int64, methods ...string) stacks.Stack {
	s := stacks.Stack{Count: count, Thread: "worker-0"}
	if !strings.HasPrefix(methods[0], "[") {
		methods = append([]string{entry}, methods...)
	}
	for _, method := range methods {
		frame := stacks.Frame{Function: method, Mapping: "[jit:HotSpot]"}
		if strings.HasPrefix(method, "[") {
			frame.Mapping = ""
		}
		s.Frames = append([]stacks.Frame{frame}, s.Frames...)
	}
	return s
}

// wrong returns the failed verdicts.
func wrong(verdicts []verdict) string {
	var wrong []string
	for _, v := range verdicts {
		if !v.ok() {
			wrong = append(wrong, v.what)
		}
	}
	return strings.Join(wrong, ", ")
}

func TestJudge(t *testing.T) {
	half := guests.Truth{CPU: time.Second, Claims: []guests.Claim{
		{Measure: guests.Self, Name: "g.A.inner", CPU: 500 * time.Millisecond},
		{Measure: guests.Total, Name: "g.A.outer", CPU: 500 * time.Millisecond},
		{Measure: guests.Thread, Name: "worker-0", CPU: time.Second},
	}}
	recursive := guests.Truth{CPU: time.Second, Depths: []guests.Depth{
		{Entry: "g.R.deep", Method: "g.R.down", Bottom: "g.R.bottom", Times: 3},
	}}
	under := guests.Truth{CPU: time.Second, Unders: []guests.Under{{Inner: "g.D.burn", Outer: "g.Base"}}}
	plain := trial{program: guests.Program{Name: "test"}}

	for name, tt := range map[string]struct {
		trial trial
		truth guests.Truth
		own   []stacks.Stack
		want  string // wrong verdicts
	}{
		"right": {trial: plain, truth: half, own: []stacks.Stack{
			stack(5000, "g.A.outer", "g.A.inner"), stack(5000, "g.B.other"),
		}},
		"within tolerance": {trial: plain, truth: half, own: []stacks.Stack{
			stack(5200, "g.A.outer", "g.A.inner"), stack(4800, "g.B.other"),
		}},
		"wrong shares": {trial: plain, truth: half, want: "self g.A.inner, total g.A.outer", own: []stacks.Stack{
			stack(5500, "g.A.outer", "g.A.inner"), stack(4500, "g.B.other"),
		}},
		"a leaf that was inlined": {trial: plain, truth: half, want: "self g.A.inner", own: []stacks.Stack{
			stack(5000, "g.A.outer"), stack(5000, "g.B.other"),
		}},
		"a leaf that nobody can tell": {
			trial: trial{program: guests.Program{Inlines: true}}, truth: half,
			own: []stacks.Stack{stack(5000, "g.A.outer"), stack(5000, "g.B.other")},
		},
		"a leaf that can be told": {
			trial: trial{program: guests.Program{Inlines: true}, flavour: guests.Flavour{InnerMethods: true}},
			truth: half,
			own:   []stacks.Stack{stack(5000, "g.A.outer"), stack(5000, "g.B.other")},
			want:  "self g.A.inner",
		},
		"truncated": {trial: plain, truth: half, want: "whole stacks", own: []stacks.Stack{
			stack(4900, "g.A.outer", "g.A.inner"), stack(5000, "g.B.other"),
			stack(100, "[truncated: depth]", "g.A.outer", "g.A.inner"),
		}},
		"stale": {trial: plain, truth: half, want: "stacks with all names", own: []stacks.Stack{
			stack(5000, "g.A.outer", "g.A.inner"), stack(4900, "g.B.other"), stack(100, "g.B.other", "[stale]"),
		}},
		"stale where classes are unloaded": {
			trial: trial{program: guests.Program{Unloads: true}}, truth: half,
			own: []stacks.Stack{
				stack(5000, "g.A.outer", "g.A.inner"), stack(4900, "g.B.other"), stack(100, "g.B.other", "[stale]"),
			},
		},
		"depth": {trial: plain, truth: recursive, own: []stacks.Stack{
			stack(10, "g.R.deep", "g.R.down", "g.R.down", "g.R.down", "g.R.bottom"), stack(1, "g.R.deep", "g.R.down"),
		}},
		"wrong depth": {trial: plain, truth: recursive, want: "depth of g.R.deep", own: []stacks.Stack{
			stack(10, "g.R.deep", "g.R.down", "g.R.down", "g.R.bottom"),
		}},
		"no deep stack at all": {trial: plain, truth: recursive, want: "depth of g.R.deep", own: []stacks.Stack{
			stack(10, "g.B.other"),
		}},
		"under": {trial: plain, truth: under, own: []stacks.Stack{stack(10, "g.Base7.caller", "g.D.burn")}},
		"not under": {trial: plain, truth: under, want: "g.D.burn under g.Base", own: []stacks.Stack{
			stack(10, "g.D.burn"),
		}},
		"marked instead": {
			trial: plain, truth: under, want: "g.D.burn under g.Base, whole stacks",
			own: []stacks.Stack{stack(10, "[truncated: virtual thread]", "g.D.burn")},
		},
		"on a carrier": {trial: plain, truth: under, own: []stacks.Stack{
			{Count: 10, Frames: append(stack(10, "[x]", "g.Base7.caller", "g.D.burn").Frames[:2],
				stacks.Frame{Function: carrierEntry})},
		}},
		"virtual threads being copied": {trial: trial{program: guests.Program{Mounts: true}}, truth: under,
			own: []stacks.Stack{
				stack(9900, "g.Base7.caller", "g.D.burn"), stack(100, "[truncated: copied]", "g.Segment.run"),
			}},
		"too many virtual threads being copied": {
			trial: trial{program: guests.Program{Mounts: true}}, truth: under, want: "whole stacks",
			own: []stacks.Stack{
				stack(9800, "g.Base7.caller", "g.D.burn"), stack(200, "[truncated: copied]", "g.Segment.run"),
			},
		},
		"nothing": {trial: plain, truth: half, want: "samples of threads *"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wrong(tt.trial.judge(tt.truth, tt.own)); got != tt.want {
				t.Errorf("wrong are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestJudgeGenerations(t *testing.T) {
	truth := guests.Truth{CPU: time.Second}
	for _, name := range []string{"000010", "000012", "000014", "000016"} {
		truth.Claims = append(truth.Claims, guests.Claim{
			Measure: guests.Total, Name: "guest.Gen" + name + ".applyAsLong", CPU: 250 * time.Millisecond,
		})
	}
	generation := func(count int64, number string) stacks.Stack {
		return stack(count, "guest.Gen"+number+".applyAsLong", "guest.Gen"+number+".run"+number)
	}
	right := []stacks.Stack{
		generation(50, "000010"), generation(100, "000012"), generation(100, "000014"), generation(30, "000016"),
	}
	const names, counts = "stacks without a wrong name", "generations without others' samples"
	for name, tt := range map[string]struct {
		more stacks.Stack
		want string
	}{
		"right":              {more: stack(1, "guest.Churn.churn")},
		"two numbers":        {more: stack(1, "guest.Gen000012.applyAsLong", "guest.Gen000014.run000014"), want: names},
		"two in one name":    {more: stack(1, "guest.Gen000012.run000014"), want: names},
		"one that never ran": {more: generation(1, "000018"), want: names},
		"another thread's":   {more: generation(1, "000013"), want: names},
		"too many":           {more: generation(300, "000012"), want: counts},
	} {
		t.Run(name, func(t *testing.T) {
			own := append([]stacks.Stack{tt.more}, right...)
			if got := wrong(trial{}.judge(truth, own)); got != tt.want {
				t.Errorf("wrong are %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSummarise(t *testing.T) {
	c := summarise([]stacks.Stack{
		stack(990, "s.A.a", "s.A.b"),
		stack(6, "[truncated: depth]", "s.A.b"),
		{Count: 4, Frames: []stacks.Frame{{Function: "start_thread", Mapping: "libc.so.6"}}},
	})
	if c.samples != 1000 || c.whole != 0.99 || c.ok() {
		t.Errorf("got %+v", c)
	}
	if want := "6 depth, below s.A.b; 4 without an entry frame, unmarked"; c.rest() != want {
		t.Errorf("got  %s\nwant %s", c.rest(), want)
	}
	if len(c.wrong) != 1 || !strings.Contains(c.wrong[0], "start_thread") {
		t.Errorf("the unmarked stack is not shown: %q", c.wrong)
	}
}
