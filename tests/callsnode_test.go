package tests

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/node"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// startNode starts a JavaScript program whose calls are known, and ends it with the test.
func startNode(t *testing.T) *node.Guest {
	t.Helper()
	needs.Root(t, "sampling")
	g, err := node.Start(context.WithoutCancel(t.Context()))
	if errors.Is(err, node.ErrMissing) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("the guest is hurt: %v", err)
		}
	})
	return g
}

// TestCallsOfMappedCode: code that only a map for perf names has these names in a CPU profile. Its
// calls are sampled without a flag for it, and three of four calls of a function have the right
// caller.
func TestCallsOfMappedCode(t *testing.T) {
	unsafe := breakpoints.Check()
	flag := breakpoints.Flag
	switch {
	case errors.Is(unsafe, breakpoint.ErrLost):
		flag = "--breakpoints=never"
	case unsafe != nil:
		t.Fatal(unsafe)
	}
	guest := startNode(t)
	const samples = 256 // samples of a window
	recording, err := built.Record(t.Context(), profiler.Options{PID: guest.PID(), Duration: 4 * time.Second,
		Extra: []string{
			"-e", "cpu,calls", "--budget=10%", "--samples=256", "--guest-socket", output(t, "guest.sock"), flag,
		}})
	if err != nil {
		t.Fatal(err)
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		t.Error(err)
	}
	for caller, callee := range map[string]string{"often": "leaf", "rarely": "leaf", "round": "often"} {
		if !called(recording.Profile, caller, callee) {
			t.Errorf("no stack of the time profile has %s below %s", callee, caller)
		}
	}
	if unsafe != nil {
		t.Skipf("the names of the map are right; calls need breakpoints: %v", unsafe)
	}

	calls, often, rarely := callEdges(t, recording.Profile), 0.0, 0.0
	for e, n := range calls.Edges() {
		switch caller, callee := jsFunction(e.Caller), jsFunction(e.Callee); callee {
		case "leaf":
			if caller == "often" {
				often += n
			} else if rarely += n; caller != "rarely" {
				t.Errorf("%s never called %s", e.Caller, e.Callee)
			}
		case "often", "rarely":
			if caller != "round" {
				t.Errorf("%s never called %s", e.Caller, e.Callee)
			}
		}
	}
	const enough = 500
	if often+rarely < enough {
		t.Fatalf("%v calls of leaf, want %d or more:\n%s", often+rarely, enough, recording.Output)
	}
	// A window has whole turns of the loop, of four calls of leaf and two others, and a part of one
	// at its end, in which all four may be missing from one caller. The rest is drawn, if not by
	// chance: five deviations.
	share, want := often/(often+rarely), 0.75
	tolerance := 4/(samples*4./6) + 5*math.Sqrt(want*(1-want)/(often+rarely))
	if math.Abs(share-want) > tolerance {
		t.Errorf("often makes %.4f of %v calls of leaf, want %.4f within %.4f", share, often+rarely, want, tolerance)
	}
}

// jsFunction is the function in V8's name for it, "JS:leaf file:12:14"; "" for what is not compiled
// JavaScript.
func jsFunction(name string) string {
	name, ok := strings.CutPrefix(name, "JS:")
	if !ok {
		return ""
	}
	name, _, _ = strings.Cut(name, " ")
	return name
}

// called reports whether a stack of a profile has a function right below its caller.
func called(p *profile.Profile, caller, callee string) bool {
	for _, s := range p.Sample {
		for i := 1; i < len(s.Location); i++ {
			below, above := s.Location[i-1], s.Location[i]
			if s.Value[0] > 0 && below.Mapping != nil && below.Mapping.File == "[jit]" &&
				jsFunction(below.Line[0].Function.Name) == callee && jsFunction(above.Line[0].Function.Name) == caller {
				return true
			}
		}
	}
	return false
}
