package lanes

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

const ms = time.Millisecond

// show writes a lane: 3a is three steps of the cause a, a70b30 is one of two.
func show(l *profile.Lanes, tid int) string {
	for _, t := range l.Threads {
		if t.TID != tid {
			continue
		}
		words := []string{fmt.Sprintf("@%d", t.From)}
		for _, run := range t.Runs {
			word := ""
			for _, part := range run.Parts {
				word += fmt.Sprintf("%s%d", l.Causes[part.Cause], part.Percent)
			}
			if run.Steps > 1 {
				word = fmt.Sprintf("%dx%s", run.Steps, word)
			}
			words = append(words, word)
		}
		return strings.Join(words, " ")
	}
	return "none"
}

func named(uint32) string { return "" }

func same(row string) string { return row }

func TestLanes(t *testing.T) {
	type wait struct {
		from, until time.Duration
		weight      float64
		row         string
	}
	for _, tt := range []struct {
		name            string
		waits           []wait
		from, until, on time.Duration // it existed; until 0: only the waits say so
		length          time.Duration
		want            string
	}{
		{"exact waits", []wait{{0, 35 * ms, 1, "s"}, {65 * ms, 100 * ms, 1, "m"}}, 0, 100 * ms, 30 * ms, 100 * ms,
			"@0 3xs100 s50running50 2xrunning100 m50running50 3xm100"},
		{"began and ended", []wait{{25 * ms, 40 * ms, 1, "s"}}, 15 * ms, 55 * ms, 25 * ms, 100 * ms,
			"@1 running50 s50running50 s100 running100 running50"},
		{"only waits are known", []wait{{10 * ms, 20 * ms, 1, "s"}, {30 * ms, 40 * ms, 1, "s"}}, 0, 0, 0, 100 * ms,
			"@1 s100 running100 s100"},
		{"drawn where it was", []wait{{12 * ms, 14 * ms, 2, "s"}}, 0, 40 * ms, 36 * ms, 40 * ms,
			"@0 running100 running60s40 2xrunning100"},
		{"drawn ones are scaled", []wait{{12 * ms, 14 * ms, 5, "s"}}, 0, 40 * ms, 36 * ms, 40 * ms,
			"@0 running100 running60s40 2xrunning100"},
		{"drawn ones have no room", []wait{{12 * ms, 14 * ms, 10, "s"}, {15 * ms, 20 * ms, 1, "m"}}, 0, 40 * ms,
			15 * ms, 40 * ms, "@0 s100 m50s50 s50running50 running100"},
		{"none was drawn", nil, 0, 40 * ms, 20 * ms, 40 * ms, "@0 4xunknown50running50"},
		{"more waits than time", []wait{{0, 20 * ms, 1, "s"}, {10 * ms, 40 * ms, 1, "m"}}, 0, 40 * ms, 0, 40 * ms,
			"@0 2xs100 2xm100"},
		{"the whole time is unknown", []wait{{12 * ms, 14 * ms, 5, "s"}}, 0, 40 * ms, -1, 40 * ms,
			"@0 running100 s100 2xrunning100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Recorder[int, string]
			for _, w := range tt.waits {
				r.Wait(1, 8, w.from, w.until, w.weight, w.row)
			}
			if tt.until > 0 {
				r.Existed(1, 8, "", tt.from, tt.until, tt.on)
			}
			if got := show(r.Lanes(1, tt.length, named, same), 8); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if r.Lanes(2, tt.length, named, same) != nil {
				t.Error("another process has lanes")
			}
		})
	}
}

// However long a window is, the lanes keep the sums of what was added, in a bounded number of
// cells.
func TestBounded(t *testing.T) {
	r := Recorder[int, string]{bound: 2000}
	random := rand.New(rand.NewPCG(1, 2))
	const threads = 20
	var sums [threads]map[string]float64
	length := time.Duration(0)
	for i := range sums {
		sums[i] = map[string]float64{}
	}
	for range 20_000 {
		tid := random.IntN(threads)
		from := length - time.Duration(random.IntN(50))*ms
		until := length + time.Duration(1+random.IntN(30))*ms
		if from = max(from, 0); tid < 2 { // the others' waits would overlap
			row := string(rune('a' + random.IntN(3)))
			r.Wait(1, uint32(tid), length, until, 1, row)
			sums[tid][row] += float64(until - length)
		} else {
			r.Wait(1, uint32(tid), from, until, 1, "x")
		}
		length = until
		if r.cells > 2000 {
			t.Fatalf("%d cells", r.cells)
		}
	}
	for tid := range sums[:2] {
		r.Existed(1, uint32(tid), "", 0, length, -1)
	}
	l := r.Lanes(1, length, named, same)
	if l.Steps > maxSteps || time.Duration(l.Steps)*l.Step < length {
		t.Errorf("%d steps of %v for %v", l.Steps, l.Step, length)
	}
	for _, lane := range l.Threads {
		if lane.TID >= 2 {
			continue
		}
		got := map[string]float64{}
		for _, run := range lane.Runs {
			for _, part := range run.Parts {
				got[l.Causes[part.Cause]] += float64(run.Steps) * float64(part.Percent) / 100 * float64(l.Step)
			}
		}
		all := 0.0
		for row, want := range sums[lane.TID] {
			if d := got[row] - want; d > 0.02*float64(l.Step)*10 || -d > 0.02*float64(l.Step)*10 {
				t.Errorf("thread %d, %s: %v, want %v", lane.TID, row, time.Duration(got[row]), time.Duration(want))
			}
			all += got[row]
		}
		if d := all + got[cause.Running] - float64(length); d > float64(l.Step) || -d > float64(l.Step) {
			t.Errorf("thread %d: %v in all, want %v", lane.TID, time.Duration(all+got[cause.Running]), length)
		}
	}
}

// Threads that find no room have no lane, and are counted.
func TestLeftOut(t *testing.T) {
	r := Recorder[int, int]{bound: 100}
	for i := range 300 {
		for at := range 10 {
			r.Wait(1, uint32(i), time.Duration(at)*20*ms, time.Duration(at)*20*ms+ms, 1, i)
		}
	}
	l := r.Lanes(1, time.Second, named, func(int) string { return cause.Sleep })
	if len(l.Threads) == 0 || len(l.Threads)+l.LeftOut != 300 || r.cells > 100 {
		t.Errorf("%d lanes, %d without, %d cells", len(l.Threads), l.LeftOut, r.cells)
	}
}

// The busiest threads come first, and a thread that only ran has a lane.
func TestOrder(t *testing.T) {
	var r Recorder[int, string]
	r.Wait(1, 7, 0, 100*ms, 1, cause.Idle)
	r.Wait(1, 8, 0, 50*ms, 1, cause.Socket)
	r.Ran(1, 9, 20*ms)
	r.Ran(1, 9, 90*ms)
	l := r.Lanes(1, 100*ms, func(tid uint32) string { return fmt.Sprint("t", tid) }, same)
	var order []string
	for _, lane := range l.Threads {
		order = append(order, lane.Thread)
	}
	if got := strings.Join(order, " "); got != "t9 t8 t7" {
		t.Errorf("order %s", got)
	}
	if got := show(l, 9); got != "@2 7xrunning100" {
		t.Error(got)
	}
}

// Threads that there is no room for count once, however often they wait.
func TestTooManyThreads(t *testing.T) {
	var r Recorder[int, string]
	const more = 10
	for round := range time.Duration(3) {
		for tid := range uint32(maxThreads + more) {
			r.Wait(1, tid, round*100*ms, round*100*ms+ms, 1, "s")
		}
	}
	if got, want := r.Lanes(1, 300*ms, named, same).LeftOut, maxThreads-MaxLanes+more; got != want {
		t.Errorf("%d threads are left out, want %d", got, want)
	}
}

// Waits of 200 threads in windows of 10 s.
func BenchmarkWait(b *testing.B) {
	const threads, waits = 200, 200_000
	var r Recorder[int, int]
	for i := 0; b.Loop(); i++ {
		if i == waits {
			r, i = Recorder[int, int]{}, 0
		}
		at := time.Duration(i) * 50 * time.Microsecond
		r.Wait(1, uint32(i%threads), at, at+ms, float64(1+i%2), i%5)
	}
}

// 200 lanes that change with each step.
func BenchmarkOf(b *testing.B) {
	const threads = 200
	var r Recorder[int, int]
	for i := range 200_000 {
		at := time.Duration(i) * 50 * time.Microsecond
		r.Wait(1, uint32(i%threads), at, at+ms, float64(1+i%2), i%5)
	}
	for tid := range uint32(threads) {
		r.Existed(1, tid, "", 0, 10*time.Second, 9*time.Second)
	}
	names := [...]string{cause.Socket, cause.Monitor, cause.Sleep, cause.Idle, cause.Park}
	for b.Loop() {
		r.Lanes(1, 10*time.Second, named, func(i int) string { return names[i] })
	}
}
