//go:build linux && amd64

package hotspot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// startTimed starts Timed.java. It ends with the test.
func startTimed(t *testing.T, jdk jvm.JDK, mode string, rounds, threads int, flags ...string) *jvm.Guest {
	t.Helper()
	return startGuest(t, jdk, "Timed", []string{mode, strconv.Itoa(rounds), strconv.Itoa(threads)},
		append([]string{"-XX:+UseSerialGC"}, flags...)...)
}

// startLoops starts Loops.java. It ends with the test.
func startLoops(t *testing.T, jdk jvm.JDK, mode string, n, rounds int, flags ...string) *jvm.Guest {
	t.Helper()
	return startGuest(t, jdk, "Loops", []string{mode, strconv.Itoa(n), strconv.Itoa(rounds)}, flags...)
}

// startGuest starts a program of testdata, none of whose methods is inlined.
func startGuest(t *testing.T, jdk jvm.JDK, class string, args []string, flags ...string) *jvm.Guest {
	t.Helper()
	classes, err := needs.JDK(t).Compile(t.Context(), jvm.Build{Sources: os.DirFS("testdata"),
		Only: []string{class + ".java"}, Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	g, err := jvm.Start(context.Background(), jvm.Command{ // it ends with its standard input
		JDK: jdk, Classpath: []string{classes}, Main: class, Args: args,
		Flags: append([]string{"-Xmx64m", "-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline," + class + "::*"},
			flags...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// truth is how long an invocation takes by the guest's own clock, ns, in the second from now on.
func truth(t *testing.T, g *jvm.Guest) float64 {
	t.Helper()
	return truthsAtOnce(t, map[int]*jvm.Guest{g.PID(): g})[g.PID()]
}

// truthsAtOnce is that of several guests in the same second.
func truthsAtOnce(t *testing.T, guests map[int]*jvm.Guest) map[int]float64 {
	t.Helper()
	var mu sync.Mutex
	var reading errgroup.Group
	found := make(map[int]float64, len(guests))
	for pid, g := range guests {
		reading.Go(func() error {
			answer, err := g.Order("truth")
			if err != nil || len(answer) != 1 {
				return fmt.Errorf("answer %q, %w", answer, err)
			}
			ns, err := strconv.ParseFloat(answer[0], 64)
			mu.Lock()
			defer mu.Unlock()
			found[pid] = ns
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		t.Fatal(err)
	}
	return found
}

// timeMethod times a method until there are so many timings of its C2 version.
func timeMethod(t *testing.T, g *jvm.Guest, method string, n int) (*Engine, []timing.Timing) {
	t.Helper()
	m, err := ParseMethod(method)
	if err != nil {
		t.Fatal(err)
	}
	e, err := Open(t.Context(), Options{PIDs: []int{g.PID()}, Method: m, Breakpoints: breakpoint.Always,
		Share: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	byVersion := map[timing.Version][]timing.Timing{}
	for {
		list, err := e.Take(ctx, nil)
		for _, one := range list {
			byVersion[one.Version] = append(byVersion[one.Version], one)
			if of := byVersion[one.Version]; len(of) >= n && strings.HasSuffix(one.Version.Name, " C2") {
				return e, of
			}
		}
		if err != nil {
			for v, list := range byVersion {
				t.Logf("%s: %d timings", v.Name, len(list))
			}
			t.Logf("%+v %v", e.Stats(), e.Notes())
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("too few timings of %s", method)
			}
			t.Fatal(err)
		}
	}
}

// lower is the mean from the lowest tenth to the median, as Timed.java has it.
func lower(list []timing.Timing) float64 { return band(list, 0.1, 0.5) }

// band is the mean of durations between two quantiles, ns.
func band(list []timing.Timing, from, to float64) float64 {
	durations := make([]time.Duration, len(list))
	for i, one := range list {
		durations[i] = one.Duration
	}
	slices.Sort(durations)
	n := float64(len(durations))
	durations = durations[int(from*n):int(to*n)]
	var sum time.Duration
	for _, d := range durations {
		sum += d
	}
	return float64(sum) / float64(len(durations))
}

// mean is the mean duration in ns, without the lowest and the highest tenth, as the cost of a
// timing is taken.
func mean(list []timing.Timing) float64 {
	values := make([]float64, len(list))
	for i, one := range list {
		values[i] = float64(one.Duration)
	}
	return middle(values)
}

// Durations from 5 us to 1 ms, as the program's own clock has them.
func TestLiveDurations(t *testing.T) {
	needs.Root(t, "to time invocations")
	breakpoints.Need(t)
	for i, jdk := range needs.JDKs(t) {
		// JDK 25 computes several rounds at once.
		for j, ns := range []int{5_000, 1_000_000, 20_000, 100_000} {
			// The longest takes the most time, and what a JDK changes shows in the others.
			if i == 0 && j > 1 || i == 1 && j == 1 {
				continue
			}
			rounds := ns * []int{1, 16}[min(i, 1)]
			t.Run(fmt.Sprintf("%d/%d", jdk.Version, ns), func(t *testing.T) {
				g := startTimed(t, jdk, "work", rounds, 1)
				e, list := timeMethod(t, g, "Timed.work", 600)
				v, truths := list[0].Version, []float64{truth(t, g)}
				list = nil
				for range 2 {
					list = append(list, again(t, e, v, 300)...)
					truths = append(truths, truth(t, g))
				}
				compare(t, e, list, truths)
			})
		}
	}
}

// again returns more timings of a version.
func again(t *testing.T, e *Engine, v timing.Version, n int) (of []timing.Timing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(of) < n {
		list, err := e.Take(ctx, nil)
		if err != nil {
			t.Fatalf("%d timings of %s, %+v: %v", len(of), v.Name, e.Stats(), err)
		}
		for _, one := range list {
			if one.Version == v {
				of = append(of, one)
			}
		}
	}
	return of
}

// compare compares timings with what the program's own clock had before, between and after them:
// the machine may have other work, which makes all of them longer. Timings include the traps as
// they come, cheap and expensive ones, of which the mean is subtracted: so it is the mean that must
// not be too short. It may be too long, where other programs interrupt or slow traps down; then it is
// the shortest timings that must not be.
func compare(t *testing.T, e *Engine, list []timing.Timing, truths []float64) {
	t.Helper()
	cost, within := e.Cost()
	mean, short, least, most := mean(list), band(list, 0.05, 0.25), slices.Min(truths), slices.Max(truths)
	t.Logf("%s: %.0f ns, shortest %.0f, want %.0f, %+.2f %%; cost %v within %v; spent %v; %+v %v",
		list[0].Version.Name, mean, short, truths, 100*(2*mean/(least+most)-1), cost, within, e.Spent(), e.Stats(),
		e.Notes())
	const sigmas = 3
	allowed := 0.02*most + sigmas*math.Sqrt2*float64(within) // the traps of timings vary as those of pairs
	if mean < least-allowed || short > most+allowed {
		t.Errorf("%s: %.0f ns, shortest %.0f, want one of %.0f within %.0f", list[0].Version.Name, mean, short, truths,
			allowed)
	}
}

// ratiosOf returns how many times longer the quantile at is than the shortest timings, sorted: of
// each 100 timings in a row, because the speed of a machine with other work changes.
func ratiosOf(list []timing.Timing, at float64) (ratios []float64) {
	for chunk := range slices.Chunk(list, 100) {
		slices.SortFunc(chunk, func(a, b timing.Timing) int { return cmp.Compare(a.Duration, b.Duration) })
		ratios = append(ratios,
			float64(chunk[int(at*float64(len(chunk)))].Duration)/float64(chunk[len(chunk)/20].Duration))
	}
	slices.Sort(ratios)
	return ratios
}

// Methods that call themselves, that are called from several places, and that exceptions leave.
func TestLiveForms(t *testing.T) {
	needs.Root(t, "to time invocations")
	breakpoints.Need(t)
	const rounds = 20_000
	for i, jdk := range needs.JDKs(t) {
		for _, test := range []struct {
			mode, method string
			at, ratio    float64 // ratio of that quantile of the lengths to the shortest; 0: windows begin at any level
			lost         string
			share        float64 // share of the invocations
		}{
			{"recursive", "Timed.recursive", 0.8, 4, "", 0},
			{"deep", "Timed.recursive(II)I", 0, 0, lostDeep, 4. / 12},
			{"nested", "Timed.work", 0.5, 1, lostElsewhere, 1. / 3},
			{"throwing", "Timed.throwing", 0.5, 1, lostUnwound, 1. / 4},
		} {
			if i > 0 && test.at > 0.5 || i > 0 && test.lost == lostDeep {
				continue // what a JDK changes is how calls return, not how a method calls itself
			}
			t.Run(fmt.Sprintf("%d/%s", jdk.Version, test.mode), func(t *testing.T) {
				g := startTimed(t, jdk, test.mode, rounds*[]int{1, 16}[min(i, 1)], 2)
				e, list := timeMethod(t, g, test.method, 200)
				list = again(t, e, list[0].Version, 1000)
				s := e.Stats()
				sum := s.Taken
				for _, n := range s.Lost {
					sum += n
				}
				t.Logf("%d to %v, median %v; %+v %v", list[0].Duration, list[len(list)-1].Duration, lower(list), s,
					e.Notes())
				share, about := float64(s.Lost[test.lost])/float64(sum), 0.1
				if test.lost == lostDeep {
					// A watch may begin within a recursion: it has not seen the outer invocations,
					// so that fewer are too deep.
					about = 0.15
				}
				switch {
				case test.lost == lostUnwound && share < 0.05:
					// JDK 17 passes the return address on the way to the handler: they are timed,
					// with the exception's making
					return
				case test.lost != "" && math.Abs(share-test.share) > about:
					t.Errorf("%s: %.2f of %d, want about %.2f", test.lost, share, sum, test.share)
				}
				ratios := ratiosOf(list, test.at)
				t.Logf("ratios %.2f", ratios)
				if got := ratios[len(ratios)/2]; test.ratio > 0 && math.Abs(got/test.ratio-1) > 0.2 {
					t.Errorf("ratio %.2f, want %.2f", got, test.ratio)
				}
			})
		}
	}
}

// Two processes at the same time, one with C1's code only: their versions differ as much as their
// own clocks say, which are read again and again meanwhile, because the machine may have other
// work. The windows keep to their share, and when the processes end so do the timings.
func TestLiveTwoProcesses(t *testing.T) {
	needs.Root(t, "to time invocations")
	breakpoints.Need(t)
	const share, rounds = 0.02, 50_000
	for _, jdk := range needs.JDKs(t)[:1] { // the other tests have what a JDK changes
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) {
			guests := map[int]*jvm.Guest{}
			truths := map[int][]float64{}
			opt := Options{Method: Method{Function: "Timed.work"}, Breakpoints: breakpoint.Always, Share: share}
			for _, flag := range []string{"-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation"} {
				g := startTimed(t, jdk, "work", rounds, 1, flag)
				guests[g.PID()] = g
				opt.PIDs = append(opt.PIDs, g.PID())
			}
			for _, g := range guests {
				truth(t, g) // until both are compiled
			}
			e, err := Open(t.Context(), opt)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}()
			before := cpuTimes(t, guests)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			byPID := map[int][]timing.Timing{}
			const enough, readings = 300, 4
			for len(byPID[opt.PIDs[0]]) < enough || len(byPID[opt.PIDs[1]]) < enough ||
				len(truths[opt.PIDs[0]]) < readings {
				for pid, ns := range truthsAtOnce(t, guests) {
					truths[pid] = append(truths[pid], ns)
				}
				list, err := e.Take(ctx, nil)
				if err != nil {
					t.Fatalf("%v; %+v %v", err, e.Stats(), e.Notes())
				}
				for _, one := range list {
					byPID[one.Version.PID] = append(byPID[one.Version.PID], one)
				}
			}
			spent, used := e.Spent(), cpuTimes(t, guests)-before
			const atOnce = 20 * time.Millisecond // windows and surveys that were paid in advance
			if most := time.Duration(share*float64(used)) + atOnce; spent > most {
				t.Errorf("windows took %v of %v, want %v", spent, used, most)
			}
			t.Logf("spent %v of %v", spent, used)
			for pid, list := range byPID {
				compare(t, e, list, truths[pid])
			}
			for _, g := range guests {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			}
			for err == nil {
				_, err = e.Take(ctx, nil)
			}
			if !errors.Is(err, proc.ErrGone) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func cpuTimes(t *testing.T, guests map[int]*jvm.Guest) (sum time.Duration) {
	t.Helper()
	for _, g := range guests {
		used, err := g.CPUTime()
		if err != nil {
			t.Fatal(err)
		}
		sum += used
	}
	return sum
}
