package guests

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

func TestParseTruth(t *testing.T) {
	truth, err := parseTruth([]string{
		"truth self guest.Plain.heavy 600",
		"truth total guest.Plain.light 300",
		"depth a.deep a.down a.bottom 1000",
		"under a.inner a.outer",
		"leaf a.outer a.inner",
		"cpu 1200",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(truth.Claims) != 2 || truth.CPU != 1200*time.Nanosecond {
		t.Fatalf("got %+v", truth)
	}
	heavy := truth.Claims[0]
	if heavy.Measure != Self || heavy.Name != "guest.Plain.heavy" || truth.Share(heavy) != 0.5 {
		t.Errorf("got %+v, a share of %v", heavy, truth.Share(heavy))
	}
	if want := (Depth{"a.deep", "a.down", "a.bottom", 1000}); len(truth.Depths) != 1 || truth.Depths[0] != want {
		t.Errorf("got %+v, want %+v", truth.Depths, want)
	}
	if want := (Under{"a.inner", "a.outer"}); len(truth.Unders) != 1 || truth.Unders[0] != want {
		t.Errorf("got %+v, want %+v", truth.Unders, want)
	}
	if want := (Leaf{"a.outer", "a.inner"}); len(truth.Leaves) != 1 || truth.Leaves[0] != want {
		t.Errorf("got %+v, want %+v", truth.Leaves, want)
	}

	for _, line := range []string{"", "nonsense", "leaf a", "truth self a", "truth self a x", "depth a b c", "cpu",
		"cpu x", "cpu 0"} {
		if got, err := parseTruth([]string{line}); err == nil {
			t.Errorf("parsed %q as %+v", line, got)
		}
	}
}

// Every program runs, keeps its checksums, and reports the shares of its CPU time that its work
// took.
func TestPrograms(t *testing.T) {
	jdks := needs.JDKs(t)
	jdk := jdks[len(jdks)-1] // the newest one runs most programs
	programs := append(Programs(), Crowd(), Siblings(), Paced(10))
	for _, pair := range Pairs() {
		programs = append(programs, pair.Fast, pair.Slow)
	}
	for _, program := range programs {
		if !program.Runs(Flavour{}, jdk.Version) {
			continue
		}
		t.Run(program.Name, func(t *testing.T) {
			t.Parallel()
			tryProgram(t, jdk, program)
		})
	}
}

func tryProgram(t *testing.T, jdk jvm.JDK, program Program) {
	guest, err := Start(t.Context(), jdk, program, Flavour{})
	if err != nil {
		t.Fatal(err)
	}
	// Work of every kind would take long: Churn does ever new kinds of it.
	some := func(truth Truth) bool { return truth.CPU > 0 }
	truth, err := guest.await(t.Context(), time.Now(), some)
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range truth.Claims {
		if share := truth.Share(claim); share < 0 || share > 1 {
			t.Errorf("%s %s has a share of %.3f", claim.Measure, claim.Name, share)
		}
	}
	if err := guest.Close(); err != nil {
		t.Error(err)
	}
}
