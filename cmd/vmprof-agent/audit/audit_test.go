package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// A fakeEngine has timings of versions that take 1 µs, and some percent more.
type fakeEngine struct {
	random  *rand.Rand
	percent []float64 // by version, of pid 7
	ns      float64   // of version 0
	targets []timing.Target
	lost    map[string]uint64
	taken   uint64
	most    uint64 // timings that there are; 0: any number
	began   time.Time
}

func (e *fakeEngine) Take(ctx context.Context, list []timing.Timing) ([]timing.Timing, error) {
	turn := 2000
	switch {
	case len(e.percent) == 0:
		turn = 0
	case e.most > 0 && e.taken == 0: // one of each version
		turn = min(len(e.percent), int(e.most))
		e.began = time.Now()
	case e.most > 0 && time.Since(e.began) < 2500*time.Millisecond: // until the others count, also on a busy machine
		turn = 0
	case e.most > 0:
		turn = int(e.most - e.taken)
	}
	for i := range turn {
		version := e.random.IntN(len(e.percent))
		if e.most > 0 {
			version = i % len(e.percent)
		}
		d := time.Duration(e.ns * (1 + e.percent[version]/100) * (0.9 + 0.2*e.random.Float64()))
		list = append(list, timing.Timing{Region: timing.Region{Method: "f"},
			Version: timing.Version{PID: 7, ID: uint64(version)}, Duration: d, Part: d, Runs: 1})
		e.taken++
	}
	select {
	case <-ctx.Done():
		return list, ctx.Err()
	case <-time.After(10 * time.Millisecond):
		return list, nil
	}
}

func (e *fakeEngine) Cost() (cost, within time.Duration) { return 50, 1 }
func (e *fakeEngine) Stats() timing.Stats                { return timing.Stats{Taken: e.taken, Lost: e.lost} }
func (e *fakeEngine) Close() error                       { return nil }
func (e *fakeEngine) Targets() []timing.Target           { return e.targets }

func TestAuditVerdicts(t *testing.T) {
	for _, test := range []struct {
		name    string
		engine  fakeEngine
		want    []string // in the output, the first at its beginning
		failure string
	}{
		{"slower", fakeEngine{ns: 1000, percent: []float64{0, 5},
			lost: map[string]uint64{"a thread's ring was full": 1234}},
			[]string{"version 1 of `f` is ", " slower than version 0 (99 % confidence, ",
				"not timed: 1,234 (a thread's ring was full)", "each costs the program 50 ± 1 ns"}, ""},
		{"faster", fakeEngine{ns: 1000, percent: []float64{0, -5}},
			[]string{"version 1 of `f` is ", " faster than version 0 (99 % confidence, "}, ""},
		{"same", fakeEngine{ns: 1000, percent: []float64{0, 0}},
			[]string{"no difference that matters: version 1 of `f` is within 1 % of version 0: "}, ""},
		{"three", fakeEngine{ns: 1000, percent: []float64{0, 10, -10}},
			[]string{"version 1 of `f` is ", "slower than version 0", "version 2 of `f` is ", "faster than version 0"},
			""},
		{"one", fakeEngine{ns: 1000, percent: []float64{0}},
			[]string{"nothing to compare: only version 0 of `f` ran in "}, ""},
		{"one, few timings", fakeEngine{ns: 1000, percent: []float64{0}, most: 170},
			[]string{"nothing to compare: only version 0 of `f` ran in ", "invocation        0", "  too few  ",
				"170 timings in "}, ""},
		{"two, few timings", fakeEngine{ns: 1000, percent: []float64{0, 5}, most: 30},
			[]string{"undecided: too few timings of ", "invocation        1", "  too few  "}, ""},
		{"one timing", fakeEngine{ns: 1000, percent: []float64{0}, most: 1},
			[]string{"nothing to compare: ", "too few timings: those in the first second of a version do not count",
				"\n1 timing in "}, ""},
		{"short", fakeEngine{ns: 20, percent: []float64{0, 5}}, nil, "f is too short to time: one timing costs as much as the code itself (perturb score"},
		{"unknown method", fakeEngine{targets: []timing.Target{{PID: 7, Methods: []string{"main", "g"}}}}, nil,
			"process 7 has no method named f; it has g, main"},
		{"near method", fakeEngine{targets: []timing.Target{{PID: 7, Methods: []string{"main", "F", "ff"}}}}, nil,
			"process 7 has no method named f; did you mean F?"},
		{"old header", fakeEngine{targets: []timing.Target{{PID: 7, Problem: "its vmprof.h is too old"}}}, nil,
			"process 7: its vmprof.h is too old"},
		{"nobody", fakeEngine{}, nil, "process 7 has not connected to /nowhere"},
		{"never run", fakeEngine{targets: []timing.Target{{PID: 7, Methods: []string{"f"}, Audited: []string{"f"}}}},
			nil, "no invocation of f began and ended within"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose seconds take no time
				o, err := parseAudit([]string{"-p", "7", "--method", "f", "--guest-socket", "/nowhere", "-d", "4"},
					io.Discard)
				if err != nil {
					t.Fatal(err)
				}
				o.pids, o.engine = []int{7}, auditEngines[len(auditEngines)-1]
				test.engine.random = rand.New(rand.NewPCG(1, 2))
				var out bytes.Buffer
				err = o.run(t.Context(), &test.engine, &out)
				if test.failure != "" {
					if err == nil || !strings.Contains(err.Error(), test.failure) {
						t.Errorf("error %v, want %q", err, test.failure)
					}
					return
				}
				if err != nil || !strings.HasPrefix(out.String(), test.want[0]) {
					t.Fatalf("%v\n%s", err, out.String())
				}
				for _, want := range test.want {
					if !strings.Contains(out.String(), want) {
						t.Errorf("no %q in\n%s", want, out.String())
					}
				}
				for line := range strings.Lines(out.String()) {
					if strings.HasPrefix(line, " ") && len(line) > 100 {
						t.Errorf("%d columns: %s", len(line), line)
					}
				}
			})
		})
	}
}

// auditLoops is an auditor with timings: by version and loop, the mean in ns.
func auditLoops(t *testing.T, flags string, n int, mean map[uint64]map[uint32]float64) *auditor {
	t.Helper()
	o, err := parseAudit(append(strings.Fields("-p 7 --method f"), strings.Fields(flags)...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.pids, o.engine = []int{7}, auditEngines[0]
	a, random := newAuditor(o), rand.New(rand.NewPCG(1, 2))
	add := func(version uint64, loop uint32, ns float64) {
		d := time.Duration(ns * (0.5 + random.Float64()))
		a.add(&timing.Timing{Region: timing.Region{Method: "f", Loop: loop},
			Version: timing.Version{PID: 7, ID: version}, Duration: d, Runs: 1}, 50)
	}
	versions := slices.Sorted(maps.Keys(mean))
	for _, version := range versions {
		add(version, 0, 1) // the first timing of a version is not warm
	}
	for i := range a.since {
		a.since[i] = time.Now().Add(-2 * warmup)
	}
	for range n {
		for _, version := range versions {
			for _, loop := range slices.Sorted(maps.Keys(mean[version])) {
				add(version, loop, mean[version][loop])
			}
		}
	}
	return a
}

// Without --precision the first verdict is the end; with it, the interval must be narrow as well.
func TestAuditPrecision(t *testing.T) {
	mean := map[uint64]map[uint32]float64{1: {0: 1000}, 2: {0: 1300}}
	for _, test := range []struct {
		flags string
		n     int
		want  bool
	}{{"", 1000, true}, {"--precision=2", 1000, false}, {"--precision=2", 100_000, true},
		{"--precision=20", 1000, true}} {
		if got := auditLoops(t, test.flags, test.n, mean).decided(); got != test.want {
			t.Errorf("%d timings %s: decided %v", test.n, test.flags, got)
		}
	}
	// What is narrow enough is the end even if it is on the edge of what matters.
	if a := auditLoops(t, "--precision=3 --least=0.001", 10_000,
		map[uint64]map[uint32]float64{1: {0: 1000}, 2: {0: 1000}}); !a.decided() {
		t.Error("a narrow interval around zero is not the end")
	}
}

// Where loops are timed apart from invocations, each has a verdict of its own, between the versions
// that have it. Loops that are too short have none, and if there are no others the verdict is on
// invocations.
func TestAuditLoopsApart(t *testing.T) {
	a := auditLoops(t, "--loops", 2000, map[uint64]map[uint32]float64{
		1: {0: 1000, 3: 10}, 2: {0: 1000, 1: 1000, 2: 2000, 3: 10}, 3: {1: 1500, 2: 2000},
	})
	if !a.decided() && a.look(2, 2, false).Reason != audit.Wide {
		t.Error("not decided")
	}
	var out bytes.Buffer
	if err := a.write(&out, time.Second, 50, 1, timing.Stats{}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"an iteration of loop 1 of `f` in version 3 is ", " slower than version 2 (",
		"an iteration of loop 2 of `f` in version 3 ", "loop 3  ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, other := range []string{"together", "an iteration of loop 3", "`f` in version 1"} {
		if strings.Contains(text, other) {
			t.Errorf("%q in\n%s", other, text)
		}
	}
	a = auditLoops(t, "--loops", 2000, map[uint64]map[uint32]float64{1: {0: 1000, 3: 10}, 2: {0: 1500, 3: 10}})
	out.Reset()
	if err := a.write(&out, time.Second, 50, 1, timing.Stats{}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.HasPrefix(text, "no loop was timed, or none takes long enough: ") ||
		!strings.Contains(text, "version 2 of `f` is ") {
		t.Errorf("invocations: %s", text)
	}
	if a = auditLoops(t, "--loops", 2000, map[uint64]map[uint32]float64{1: {3: 10}, 2: {3: 10}}); a.short() == nil {
		t.Error("loops alone, and too short: no error")
	}
}

func TestAuditFlags(t *testing.T) {
	for _, args := range []string{
		"", "-p 7", "--method f", "-p 7 --method f --confidence=0.5", "-p 7 --method f --confidence=NaN",
		"-p 7 --method f --least=0", "-p 7 --method f --precision=-1", "-p 7 --method f --precision=NaN",
		"-p 7 --method f -d 0", "-p 7 --method f g",
	} {
		var usage cli.Misuse
		if _, err := parseAudit(strings.Fields(args), io.Discard); !errors.As(err, &usage) {
			t.Errorf("audit %s: %v, want a usage error", args, err)
		}
	}
	o, err := parseAudit(strings.Fields("-p 8 -p 7 -p 8 --method f --confidence=0.9999 -d 2m"), io.Discard)
	if err != nil || len(o.targets.Words) != 3 || o.duration != 2*time.Minute {
		t.Errorf("%+v, %v", o, err)
	}
}
