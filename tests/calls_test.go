package tests

import (
	"errors"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// callEdges are the calls in a profile, of all engines together.
func callEdges(t *testing.T, p *profile.Profile) *guests.VMGraph {
	t.Helper()
	value := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool {
		return v.Type == "calls" &&
			v.Unit == "count"
	})
	if value < 0 {
		t.Fatalf("no calls/count among the sample types of\n%v", p)
	}
	graph := &guests.VMGraph{}
	for _, s := range p.Sample {
		if s.Value[value] == 0 {
			continue // a sample of time
		}
		if len(s.Location) != 2 {
			t.Fatalf("a call of %d frames", len(s.Location))
		}
		callee, caller := s.Location[0].Line[0], s.Location[1].Line[0]
		graph.Add(guests.VMEdge{Caller: caller.Function.Name, Site: int(caller.Line), Callee: callee.Function.Name},
			float64(s.Value[value]))
	}
	return graph
}

// checkShares wants every edge to exist, and to have its share of the calls.
func checkShares(t *testing.T, got, truth *guests.VMGraph, samples uint64) {
	t.Helper()
	const enough = 1000
	if samples < enough {
		t.Fatalf("%d samples, want %d or more", samples, enough)
	}
	for e := range got.Edges() {
		if truth.Weight(e) == 0 {
			t.Errorf("%v was never called", e)
		}
	}
	// A burst of 7x32 looks at more calls than a hundred turns of the program's loop make, so its
	// samples are nearly draws of their own; that bursts weigh differently by chance is taken for a
	// factor of two. Five deviations.
	draws := float64(samples) / 2
	for e, calls := range truth.Edges() {
		share, want := got.Weight(e)/got.Total(), calls/truth.Total()
		if tolerance := 5*math.Sqrt(want*(1-want)/draws) + 1/draws; math.Abs(share-want) > tolerance {
			t.Errorf("%v: share %.4f, want %.4f within %.4f", e, share, want, tolerance)
		}
	}
}

// TestCallsRecord: every call of a cooperating guest gets its share and says how it was sampled,
// and the guest computes what it always does. The reports show the calls, and a second recording
// has the same.
func TestCallsRecord(t *testing.T) {
	guest := startVM(t, "virtual")
	recording, truth := guest.record(t)
	p := recording.Profile
	checkShares(t, callEdges(t, p), truth, recording.Stats.Calls.Delivered)
	// No machine takes a hit for less than 10 ns, or half of the guest's time for so few.
	if c := recording.Stats.Calls; c.Cost() < 10*time.Duration(c.Delivered) || c.Cost() > c.GuestTime/2 ||
		c.Costs["page"] != c.Cost() {
		t.Errorf("%d samples cost %v (%v) of %v", c.Delivered, c.Cost(), c.Costs, c.GuestTime)
	}
	for _, s := range p.Sample {
		engine, basis := s.Label["engine"], s.Label["basis"]
		stride, samples, pid := s.NumLabel["stride"], s.NumLabel["samples"], s.NumLabel["pid"]
		if !slices.Equal(engine, []string{"page"}) || !slices.Equal(basis, []string{"sampled"}) ||
			!slices.Equal(stride, []int64{7}) ||
			!slices.Equal(samples, []int64{32}) || !slices.Equal(pid, []int64{int64(guest.Pid())}) {
			t.Fatalf("a call has labels engine %q, basis %q, stride %d, samples %d, pid %d", engine, basis, stride,
				samples, pid)
		}
	}
	first := write(t, p)

	t.Run("report", func(t *testing.T) {
		got := mustSucceed(t, "report", "--view=edges", first).stdout
		// The call site of the method name has two targets, and gives one of them three quarters of
		// its calls.
		for _, want := range []string{`dispatch:\d+ -> Shape0\.hash`, `>\s+7\d\.\d%\s+Shape0\.name`,
			`\s2\d\.\d%\s+Shape1\.name`} {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("no %s in\n%s", want, got)
			}
		}
	})
	t.Run("compare", func(t *testing.T) {
		again, _ := guest.record(t)
		got := mustSucceed(t, "compare", "--by=edge", first, write(t, again.Profile)).stdout
		// Each share q of n draws is off its truth p by sqrt(2p/(πn)) in the mean, those of two
		// recordings from each other by √2 times that. The overlap is short of 100 by half the sum:
		// by 50·√(2·2E/(πn)), 4 for 32 edges and half of 3000 draws. The same again for chance.
		if overlap := overlapIn(t, got); overlap <= 90 {
			t.Errorf("two recordings of the same overlap by %v:\n%s", overlap, got)
		}
	})
	t.Run("checksum", func(t *testing.T) {
		alone := startVM(t, "virtual") // nobody is at its socket
		s, err := alone.Run(guest.iterations)
		if err != nil {
			t.Fatal(err)
		}
		if s.Checksum != guest.checksum {
			t.Errorf("checksum %s after %d iterations, %s without the agent", guest.checksum, guest.iterations,
				s.Checksum)
		}
	})
}

// write writes a profile into a file.
func write(t *testing.T, p *profile.Profile) string {
	t.Helper()
	file, err := os.Create(output(t, "calls.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Write(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// overlapIn finds the overlap in what compare prints.
func overlapIn(t *testing.T, text string) float64 {
	t.Helper()
	match := regexp.MustCompile(`(?i)overlap:?\s+([0-9.]+)`).FindStringSubmatch(text)
	if match == nil {
		t.Fatalf("no overlap in\n%s", text)
	}
	overlap, err := strconv.ParseFloat(strings.TrimRight(match[1], "."), 64)
	if err != nil {
		t.Fatal(err)
	}
	return overlap
}

// The stock JVM is hurt by no engine: a guest whose results change under one ends with an error.
func TestCallsChecksumOfJVM(t *testing.T) {
	for engine, flag := range map[string]string{"listener": breakpoints.Flag, "hotspot": breakpoints.Flag,
		"hotspot without breakpoints": "--breakpoints=never"} {
		t.Run(engine, func(t *testing.T) {
			if flag == breakpoints.Flag {
				breakpoints.Need(t)
			}
			engine, _, _ := strings.Cut(engine, " ")
			guest := start(t, "Recursive")
			recording, err := built.Record(t.Context(), profiler.Options{
				PID: guest.PID(), Duration: 3 * time.Second, Extra: []string{"-e", "calls", "--engine", engine, flag,
					"--notes"},
			})
			if err != nil {
				t.Fatal(err)
			}
			if callEdges(t, recording.Profile).Len() == 0 {
				t.Errorf("no calls:\n%s", recording.Output)
			}
			if flag != breakpoints.Flag && !strings.Contains(recording.Output, flag+" was given") {
				t.Errorf("the output does not say that there are no breakpoints:\n%s", recording.Output)
			}
			if err := recording.Stats.CheckIdentities(); err != nil {
				t.Error(err)
			}
			if _, err := guest.Await(t.Context(), time.Now()); err != nil {
				t.Errorf("the guest is hurt: %v", err)
			}
		})
	}
}
