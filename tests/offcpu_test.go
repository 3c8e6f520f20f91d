package tests

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// Threads are off the CPU for as long as they say themselves, for what they say, and with whole
// stacks.
func TestRecordOffCPU(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) { recordOffCPU(t, jdk) })
}

func recordOffCPU(t *testing.T, jdk jvm.JDK, flags ...string) {
	guest := startEvents(t, jdk, events.Away, flags...)
	const amount = 3000 // ms
	if _, err := guest.Run(1, 300); err != nil {
		t.Fatal(err)
	}
	// With this budget waits of the guest's length are recorded each, on a busy machine as well.
	p, truth := recordEvents(t, guest, "offcpu", 1, amount, "--budget=50%")
	rows := events.Own(rowsOf(t, p, "waits", "offcpu"))
	if len(truth.Away) != 10 {
		t.Fatalf("%+v", truth)
	}
	checkWays(t, rows, truth)
	// Whole stacks end where the thread began.
	partial := events.Where(rows, func(r events.Row) bool { return !r.Has("java.lang.Thread.run") })
	if all, cut := events.Sum(rows, offCPU), events.Sum(partial, offCPU); cut > 0.01*all {
		t.Errorf("%v of %v have no whole stacks", time.Duration(cut), time.Duration(all))
		logRows(t, partial)
	}
}

// checkWays compares rows with what a program says of each of its ways to wait.
func checkWays(t *testing.T, rows []events.Row, truth events.Truth) {
	t.Helper()
	for _, away := range truth.Away {
		f := away.Find(rows, offCPU)
		delayed := f.Delayed + f.VMCall // the latter is for classes, compilers and collections
		t.Logf("%s: %d events, %v, of that %v runnable or stopped, %v %s; in truth %v in %d waits", away.Method,
			events.Count(f.Rows),
			time.Duration(f.Time), time.Duration(delayed), time.Duration(f.Right), away.Cause, away.Sum, away.Times)
		checkAway(t, away.Method, f.Time, away.Sum, float64(events.Count(f.Rows)))
		if away.Cause == "runnable" {
			if f.Right < 0.95*f.Time {
				t.Errorf("%s was runnable for %v of %v", away.Method, time.Duration(f.Right), time.Duration(f.Time))
			}
		} else if wrong := f.Wrong() + f.VM; wrong > 0.1*(f.Time-delayed)+0.01*float64(away.Sum) {
			// The second part is for what all ways share, such as waiting for a collection, where
			// nearly all of the time is delays.
			t.Errorf("%s waited for %v of %v because of %s", away.Method, time.Duration(f.Right),
				time.Duration(f.Time-delayed), away.Cause)
			logRows(t, f.Rows)
		}
	}
}

// logRows logs rows that are not as they should be.
func logRows(t *testing.T, rows []events.Row) {
	t.Helper()
	const most = 20
	slices.SortFunc(rows, func(a, b events.Row) int { return cmp.Compare(b.Values[offCPU], a.Values[offCPU]) })
	for _, r := range rows[:min(len(rows), most)] {
		t.Logf("  %v %s %s %v", time.Duration(r.Values[offCPU]), r.Cause, r.Thread, r.Stack)
	}
}

// offCPU is the column of the time in rows of off-CPU time.
const offCPU = 1

// The wall time of each thread is how long it existed, and the parts are what the thread says
// itself.
func TestRecordWall(t *testing.T) { onEveryJDK(t, recordWall) }

func recordWall(t *testing.T, jdk jvm.JDK) {
	guest := startEvents(t, jdk, events.Away)
	const amount = 2000 // ms
	if _, err := guest.Run(1, 300); err != nil {
		t.Fatal(err)
	}
	p, truth := recordEvents(t, guest, "wall", 1, amount, "--budget=50%")
	rows := rowsOf(t, p, "wall")
	threads, ran := map[int64]float64{}, 0.0
	for _, row := range rows {
		threads[row.TID] += row.Values[0]
		if row.Cause == "running" {
			ran += row.Values[0]
		}
	}
	// Threads of the VM are there all the time; those of the program begin and end in it.
	whole := 0
	for _, sum := range threads {
		if off := sum/float64(p.DurationNanos) - 1; math.Abs(off) <= 0.01 {
			whole++
		} else if off > 0 {
			t.Errorf("a thread's wall time is %v, in %v", time.Duration(sum), time.Duration(p.DurationNanos))
		}
	}
	t.Logf("%d of %d threads have the wall time %v, within 1 %%", whole, len(threads), time.Duration(p.DurationNanos))
	if whole < 8 {
		t.Errorf("only %d threads of %d have a wall time of %v, within 1 %%: %v", whole, len(threads),
			time.Duration(p.DurationNanos),
			slices.Sorted(maps.Values(threads)))
	}
	if ran == 0 {
		t.Error("no thread ran")
	}
	own := events.Where(events.Own(rows), func(r events.Row) bool { return r.Cause != "running" })
	for _, away := range truth.Away {
		f := away.Find(own, 0)
		checkAway(t, away.Method, f.Time, away.Sum, float64(events.Count(f.Rows)))
		if f.Right == 0 {
			t.Errorf("%s did not wait because of %s", away.Method, away.Cause)
		}
	}
}

// Where waits are too short to record each, the intervals of methods' times contain the truth.
func TestRecordTimeIntervals(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startEvents(t, needs.JDKs(t)[0], events.Dozing)
	const threads, amount = 12, 2000 // ms
	if _, err := guest.Run(threads, 500); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"offcpu", "wall"} {
		// On a busy machine the usual budget has room for too few waits of each method.
		p, truth := recordEvents(t, guest, kind, threads, amount, "--budget=10%")
		var text bytes.Buffer
		if err := eventviews.View(p)(&text, p, &layout.Options{}); err != nil {
			t.Fatal(err)
		}
		printed, wrong := 0, 0
		for i, away := range truth.Away {
			sum := away.Sum
			if kind == "wall" {
				sum += truth.Worked[i].CPU
			}
			row, ok := events.Intervals(text.String())[away.Method]
			t.Logf("%s: %s: %v ± %v, in truth %v", kind, away.Method, row.Time, row.Within, sum)
			if !ok || !row.Known {
				continue
			}
			printed++
			if !row.Holds(sum, sum/50) { // a thread is in a method before it reads its clock
				wrong++
			}
		}
		// Of six intervals that contain the truth in 95 of 100 cases each, four or more are wrong
		// in one of 10,000.
		if printed == 0 || wrong > 3 {
			t.Errorf("%s: %d of %d intervals are wrong\n%s", kind, wrong, printed, &text)
		}
	}
}

// Threads are woken by whom they say themselves, and the frames of who did it follow those of the
// wait.
func TestRecordWakers(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) {
		guest := startEvents(t, jdk, events.Woken)
		const amount = 3000 // ms
		if _, err := guest.Run(1, 300); err != nil {
			t.Fatal(err)
		}
		p, truth := recordEvents(t, guest, "offcpu", 1, amount, "--budget=50%", "--wakers")
		const offCPU = 1
		rows := events.Own(rowsOf(t, p, "waits", "offcpu"))
		if len(truth.Woken) != 6 {
			t.Fatalf("%+v", truth)
		}
		for _, woken := range truth.Woken {
			sum, blocked, right, marked := 0.0, 0.0, 0.0, 0.0
			var count int64
			wrong := map[string]float64{}
			for _, r := range rows {
				own, waker := splitWaker(r)
				if !own.Has(woken.Method) {
					continue
				}
				sum += r.Values[offCPU]
				count += r.Count
				if r.State == "runnable" || r.State == "throttled" || r.State == "stopped" || r.Cause == "safepoint" {
					continue
				}
				blocked += r.Values[offCPU]
				if r.Waker != "" {
					marked += r.Values[offCPU]
				}
				if r.Waker == woken.Waker || waker.Has(woken.Waker) {
					right += r.Values[offCPU]
					continue
				}
				wrong[fmt.Sprint(r.Waker, " ", waker.Frames)] += r.Values[offCPU]
			}
			t.Logf("%s: %v off the CPU, in truth %v; blocked for %v, of that %v until %s, %v until anybody that is "+
				"known", woken.Method, time.Duration(sum), woken.Sum,
				time.Duration(blocked), time.Duration(right), woken.Waker, time.Duration(marked))
			checkAway(t, woken.Method, sum, woken.Sum, float64(count))
			if right < 0.95*blocked {
				t.Errorf("%s waited for %v, of that only %v until %s", woken.Method, time.Duration(blocked),
					time.Duration(right), woken.Waker)
			}
			for who, sum := range wrong {
				t.Logf("  %v until %s", time.Duration(sum), who)
			}
		}
	})
}

// splitWaker returns the stack of a wait and that of who ended it.
func splitWaker(r events.Row) (own, waker stacks.Stack) {
	at := slices.IndexFunc(r.Frames, func(f stacks.Frame) bool {
		return f.Marker() &&
			strings.HasPrefix(f.Function, "[woken by ")
	})
	if at < 0 {
		return r.Stack, stacks.Stack{}
	}
	waker.Frames = slices.Clone(r.Frames[:at])
	slices.Reverse(waker.Frames)
	return stacks.Stack{Frames: r.Frames[at+1:]}, waker
}

// checkAway compares how long a method was off the CPU, by so many events, with the truth.
func checkAway(t *testing.T, method string, got float64, truth time.Duration, events float64) {
	t.Helper()
	// Of short waits, a sample is recorded: about a Poisson number.
	allowed := 0.05*float64(truth) + 4*got/math.Sqrt(max(events, 1))
	if math.Abs(got-float64(truth)) > allowed {
		t.Errorf("%s was off the CPU for %v, %v in truth, allowed is a difference of %v", method, time.Duration(got),
			truth, time.Duration(allowed))
	}
}
