//go:build linux && amd64

package hotspot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// patience is for how long tests wait for timings, on a machine that has other work.
const patience = 90 * time.Second

// timeLoops times loops of a method until that returns true.
func timeLoops(
	t *testing.T, e *Engine, until func(map[timing.Version]map[uint32][]timing.Timing) bool,
) map[timing.Version]map[uint32][]timing.Timing {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all := map[timing.Version]map[uint32][]timing.Timing{}
	for !until(all) {
		list, err := e.Take(ctx, nil)
		for _, one := range list {
			if all[one.Version] == nil {
				all[one.Version] = map[uint32][]timing.Timing{}
			}
			of := all[one.Version]
			of[one.Region.Loop] = append(of[one.Region.Loop], one)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// openLoops opens an engine for a method of Loops.java and its loops.
func openLoops(t *testing.T, method string, guests ...*jvm.Guest) *Engine {
	t.Helper()
	opt := Options{Method: Method{Function: "Loops." + method}, Loops: true, Breakpoints: breakpoint.Always,
		Share: 0.05}
	for _, g := range guests {
		opt.PIDs = append(opt.PIDs, g.PID())
	}
	e, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// perRun is the time of an iteration: the median of the means of windows, of which other programs
// disturb some, and the lower quartile. Each mean is without the lowest and the highest tenth, as
// that of the cost of a timing.
func perRun(list []timing.Timing) (median, low float64) {
	var means []float64
	for part := range slices.Chunk(list, timedPerWindow-1) {
		var per []float64
		for _, one := range part {
			per = append(per, float64(one.Duration)/float64(one.Runs))
		}
		means = append(means, middle(per))
	}
	slices.Sort(means)
	return means[len(means)/2], means[len(means)/4]
}

// truthAndWaits is truth, and for which part of that second a thread of the guest waited for a CPU, at
// most.
func truthAndWaits(t *testing.T, g *jvm.Guest) (ns, waited float64) {
	t.Helper()
	began, before := time.Now(), runDelays(t, g.PID())
	ns = truth(t, g)
	for thread, delay := range runDelays(t, g.PID()) {
		waited = max(waited, float64(delay-before[thread])/float64(time.Since(began)))
	}
	return ns, waited
}

// runDelays is for how long each thread of a process has waited for a CPU.
func runDelays(t *testing.T, pid int) map[string]time.Duration {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	delays := map[string]time.Duration{}
	for _, file := range files {
		var onCPU, waited time.Duration
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		if _, err := fmt.Sscan(string(text), &onCPU, &waited); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		delays[file] = waited
	}
	return delays
}

// Times of an iteration, as the program's own clock has them, whatever the compiler makes of the
// loop.
func TestLiveLoops(t *testing.T) {
	needs.Root(t, "to time loops")
	breakpoints.Need(t)
	for i, jdk := range needs.JDKs(t) {
		for j, test := range []struct {
			mode      string
			n, rounds int
			flags     string
			tier      string
			least     float64 // iterations of a round
		}{
			{"counted", 400_000, 0, "-XX:+UseG1GC", "C2", 1000},
			{"dividing", 200_000, 0, "-XX:+UseG1GC", "C2", 1000},
			{"nested", 100, 40_000, "-XX:+UseG1GC", "C2", 1},
			{"calling", 100, 40_000, "-XX:+UseSerialGC", "C2", 1},
			{"listed", 100, 40_000, "-XX:+UseSerialGC", "C2", 1},
			{"endless", 100, 40_000, "-XX:+UseSerialGC", "C2 OSR", 1},
			{"nested", 100, 40_000, "-XX:TieredStopAtLevel=1", "C1 level 1", 1},
			{"calling", 100, 40_000, "-XX:TieredStopAtLevel=1", "C1 level 1", 1},
		} {
			// A JDK changes where its debug information is, not what a loop is.
			if i > 0 && j != 0 && test.mode != "calling" {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s%s", jdk.Version, test.mode, test.flags), func(t *testing.T) {
				g := startLoops(t, jdk, test.mode, test.n, test.rounds, strings.Fields(test.flags)...)
				truth(t, g) // a second, in which it is compiled
				e := openLoops(t, test.mode, g)
				const enough = 450
				var list []timing.Timing
				done := func(all map[timing.Version]map[uint32][]timing.Timing) bool {
					for v, of := range all {
						if list = of[1]; len(list) >= enough && strings.HasSuffix(v.Name, " "+test.tier) {
							return true
						}
					}
					return false
				}
				// C1's outer loop has the inner one next to its poll.
				refused := fmt.Sprintf(" %s: is not timed: %s", test.tier, e.timer.slowed())
				if test.mode == "nested" && strings.HasPrefix(test.tier, "C1") && e.timer.slower >= slowBeside {
					timeLoops(t, e, func(all map[timing.Version]map[uint32][]timing.Timing) bool {
						return strings.Contains(strings.Join(e.Notes(), "\n"), refused) || done(all)
					})
					if notes := strings.Join(e.Notes(), "\n"); !strings.Contains(notes, refused) || len(list) > 0 {
						t.Errorf("%d timings beside a loop that becomes slower; %s", len(list), notes)
					}
					return
				}
				before, waitedBefore := truthAndWaits(t, g)
				all := timeLoops(t, e, done)
				after, waitedAfter := truthAndWaits(t, g)
				for v, of := range all {
					for loop, list := range of {
						median, low := perRun(list)
						t.Logf("%s loop %d: %d timings, %d iterations, %.3f ns, in a quarter of the windows %.3f",
							v.Name, loop, len(list), list[0].Runs, median, low)
					}
				}
				cost, within := e.Cost()
				waited := max(waitedBefore, waitedAfter)
				t.Logf("truth %.3f and %.3f ns, of which up to %.1f %% off the CPU; cost %v within %v; spent %v; %+v\n%s", before, after, 100*waited, cost, within,
					e.Spent(), e.Stats(), strings.Join(e.Notes(), "\n"))
				if len(list) < enough {
					t.Fatal("too few timings")
				}
				if runs := float64(list[0].Runs); runs < test.least {
					t.Errorf("%.0f iterations of a round, want at least %.0f", runs, test.least)
				}
				// Where other programs interrupt, timings may be too long in most windows, but not
				// in all. The program's own clock goes on while it waits for a CPU; timings in which
				// it waited are not among the middle ones.
				median, low := perRun(list)
				want := (before + after) / 2
				allowed := 0.04*want + 3*float64(within)/float64(list[0].Runs) + math.Abs(before-after)
				if median < want*(1-waited)-allowed || low > want+allowed {
					t.Errorf("%.2f ns an iteration, in a quarter of the windows %.2f, want %.2f within %.2f, up to %.1f %% "+
						"of it off the CPU", median, low, want, allowed, 100*waited)
				}
			})
		}
	}
}

// Loops that cannot be timed have the reason in a note, and invocations are timed.
func TestLiveLoopsRefused(t *testing.T) {
	needs.Root(t, "to time loops")
	breakpoints.Need(t)
	for i, jdk := range needs.JDKs(t) {
		flags := []string{"-XX:+UseSerialGC", "-XX:+UseParallelGC"} // without polls in counted loops
		for _, flag := range flags[min(i, 1):] {
			t.Run(fmt.Sprintf("%d/%s", jdk.Version, flag), func(t *testing.T) {
				g := startLoops(t, jdk, "counted", 400_000, 0, flag)
				truth(t, g) // a second, in which it is compiled
				e := openLoops(t, "counted", g)
				notes := ""
				all := timeLoops(t, e, func(all map[timing.Version]map[uint32][]timing.Timing) bool {
					notes = strings.Join(e.Notes(), "\n")
					for v, of := range all {
						if strings.HasSuffix(v.Name, " C2") && len(of[0]) > 0 {
							return strings.Contains(notes, " C2: is not timed: ")
						}
					}
					return false
				})
				for v, of := range all {
					if strings.HasSuffix(v.Name, " C2") && len(of[1]) > 0 {
						t.Errorf("%d timings of the loop in %s", len(of[1]), v.Name)
					}
				}
				if !strings.Contains(notes, " C2: is not timed: its code has no poll, and no call in each iteration") ||
					!strings.Contains(notes, "UseCountedLoopSafepoints") {
					t.Errorf("notes: %s", notes)
				}
			})
		}
	}
}
