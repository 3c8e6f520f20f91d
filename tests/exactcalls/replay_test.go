package exactcalls

import (
	"errors"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Each call of a recursive method without inlining is counted, with its call site.
func TestReplay(t *testing.T) {
	breakpoints.Need(t)
	const fibonacci = "suite.Work.fibonacci"
	for _, jdk := range jdks(t) {
		t.Run(jdk.String(), func(t *testing.T) {
			guest, err := suite.Start(t.Context(), jdk, "Work", "-XX:-Inline", "-Dsuite.items=1")
			if err != nil {
				t.Fatal(err)
			}
			defer guest.Close()
			if _, err := guest.RunFor(2 * time.Second); err != nil {
				t.Fatal(err)
			}
			r, err := StartReplay(guest.PID())
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}()
			got := replayed(t, r, guest, fibonacci)
			// fibonacci(n) makes as many calls as there are nodes in its binary call tree: 2
			// F(n+1) - 1, itself included.
			want := map[string]float64{fibonacci: 21890, "suite.Work.iterate": 1}
			for caller, n := range want {
				if got[caller] != n {
					t.Errorf("%v calls by %s, want %v", got[caller], caller, n)
				}
			}
			if len(got) != len(want) {
				t.Errorf("callers %v, want %v", got, want)
			}
		})
	}
}

// replayed counts the calls of a method in an iteration, by caller.
func replayed(t *testing.T, r *Replay, guest *suite.Guest, method string) map[string]float64 {
	t.Helper()
	for range 10 { // it may be compiled once more
		var codes []vmruntime.Compilation
		all, err := r.Codes()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if r.Method(c).Value().Function == method {
				codes = append(codes, c)
			}
		}
		if len(codes) == 0 {
			t.Fatalf("%s is in none of %d codes", method, len(all))
		}
		g, err := r.Count(codes, func() error {
			_, err := guest.Run(1)
			return err
		})
		if errors.Is(err, ErrReplayed) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		callers := map[string]float64{}
		for e, n := range g.Edges() {
			callers[e.Caller.Value().Function] += n
		}
		return callers
	}
	t.Fatalf("%s is compiled again and again", method)
	return nil
}
