package stacks

import (
	"slices"
	"testing"

	"github.com/google/pprof/profile"
)

// made is a profile with one stack of two Java methods, one inlined into the other, under a stub,
// above libc, and one stack that was cut.
func made() *profile.Profile {
	jit := &profile.Mapping{ID: 1, File: "[jit:HotSpot]"}
	interpreter := &profile.Mapping{ID: 4, File: "[interpreter:HotSpot]"}
	libc := &profile.Mapping{ID: 2, File: "/lib/libc.so.6"}
	stub := &profile.Mapping{ID: 3, File: "[stub:HotSpot]"}
	function := func(name string) profile.Line { return profile.Line{Function: &profile.Function{Name: name}} }
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}, {Type: "samples", Unit: "count"}},
		Sample: []*profile.Sample{
			{
				Value: []int64{30, 3},
				Label: map[string][]string{"thread": {"worker-a"}},
				Location: []*profile.Location{
					{Mapping: libc, Line: []profile.Line{function("memcpy")}},
					{Mapping: jit, Line: []profile.Line{function("a.B.inner"), function("a.B.outer")}},
					{Mapping: interpreter, Line: []profile.Line{function("a.B.outer")}},
					{Mapping: stub, Line: []profile.Line{function("call_stub")}},
				},
			},
			{
				Value: []int64{10, 1},
				Location: []*profile.Location{
					{Mapping: jit, Line: []profile.Line{function("a.B.outer")}},
					{Line: []profile.Line{function("[truncated: depth]")}},
				},
			},
		},
	}
}

func TestOf(t *testing.T) {
	got := FromProfile(made())
	if len(got) != 2 {
		t.Fatalf("got %d stacks, want 2", len(got))
	}
	whole, cut := got[0], got[1]
	if whole.Count != 3 || whole.Thread != "worker-a" || cut.Count != 1 || cut.Thread != "" {
		t.Errorf("got %d on %q and %d on %q", whole.Count, whole.Thread, cut.Count, cut.Thread)
	}
	if want := "worker-a: call_stub;a.B.outer (interpreted);a.B.outer;a.B.inner;memcpy"; whole.String() != want {
		t.Errorf("got  %s\nwant %s", whole, want)
	}
	if !whole.Self("a.B.inner") || whole.Self("a.B.outer") || whole.Self("memcpy") {
		t.Error("self is not the innermost Java method")
	}
	if whole.Times("a.B.outer") != 2 || !whole.Has("memcpy") || whole.Has("a.B.absent") {
		t.Error("methods on the stack are miscounted")
	}
	var inlined []bool
	for _, f := range whole.Frames {
		inlined = append(inlined, f.Inlined)
	}
	if !slices.Equal(inlined, []bool{false, true, false, false, false}) {
		t.Errorf("inlined: %v", inlined)
	}
	if whole.Truncated() != "" || cut.Truncated() != "depth" {
		t.Errorf("truncated: %q, %q", whole.Truncated(), cut.Truncated())
	}
	if marker := cut.Frames[1]; !marker.Marker() || marker.Java() || whole.Frames[0].Marker() {
		t.Error("markers are not distinguished from frames")
	}
}

func TestOfOtherValues(t *testing.T) {
	p := made()
	p.SampleType[1].Type = "objects"
	if got := FromProfile(p); got != nil {
		t.Errorf("got %v from a profile without samples", got)
	}
}

func TestCount(t *testing.T) {
	all := FromProfile(made())
	if got := Count(all, func(s Stack) bool { return s.Has("a.B.outer") }); got != 4 {
		t.Errorf("got %d samples, want 4", got)
	}
	if got := OnThread(all, "worker"); len(got) != 1 || got[0].Thread != "worker-a" {
		t.Errorf("got %v, want worker-a's", got)
	}
}

func TestTruncatedEmpty(t *testing.T) {
	if got := (Stack{}).Truncated(); got == "" {
		t.Error("a stack without frames passes for a whole one")
	}
}

// A leaf [inlined in M] counts for M.
func TestSelfInlinedIn(t *testing.T) {
	s := Stack{Frames: []Frame{{"[inlined in a.B.inner]", "[jit:HotSpot]", true}, {"a.B.inner", "[jit:HotSpot]", true},
		{"a.B.outer", "[jit:HotSpot]", false}}}
	if !s.Self("a.B.inner") || s.Self("a.B.outer") || s.Self("[inlined in a.B.inner]") {
		t.Error("self is not the innermost method that is known")
	}
}
