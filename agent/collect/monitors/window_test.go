package monitors

import (
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const microsecond = 1000 // ns

// hitsEvery is a kernel side's window of n hits, that many ns apart, of two sites in turn.
func hitsEvery(n, apart int) *bpf.MonitorWatch {
	w := &bpf.MonitorWatch{Watch: bpf.MonitorEnterWatch{Limit: MaxHits, Claimed: uint32(n)}}
	for i := range min(n, MaxHits) {
		w.Hits[i] = bpf.EnterHit{Time: uint64(1e9 + i*apart), Site: uint32(i % 2), Ns: microsecond}
	}
	return w
}

// interrupted makes the thread wait for a CPU for a second after every nth hit.
func interrupted(w *bpf.MonitorWatch, nth int) *bpf.MonitorWatch {
	for i := range w.Hits {
		w.Hits[i].Time += uint64(i/nth) * 1e9
		w.Hits[i].Switches = uint32(i / nth)
	}
	return w
}

func TestResult(t *testing.T) {
	const trap = 2 * time.Microsecond
	for _, test := range []struct {
		name       string
		window     *bpf.MonitorWatch
		armed      time.Duration
		counts     []int
		ran, traps time.Duration
	}{
		{"full", hitsEvery(MaxHits, 5*microsecond), time.Second, []int{32, 32}, 64 * 5 * time.Microsecond,
			64 * 3 * time.Microsecond},
		{"late hits", hitsEvery(MaxHits+20, 5*microsecond), time.Second, []int{32, 32}, 64 * 5 * time.Microsecond,
			64 * 3 * time.Microsecond},
		{"interrupted", interrupted(hitsEvery(MaxHits, 5*microsecond), 10), time.Second, []int{32, 32},
			64 * 5 * time.Microsecond, 64 * 3 * time.Microsecond},
		{"always interrupted", interrupted(hitsEvery(MaxHits, 5*microsecond), 1), time.Second, []int{32, 32}, 0,
			64 * 3 * time.Microsecond},
		{"rare", hitsEvery(3, 1000*microsecond), 10 * time.Millisecond, []int{2, 1}, 10 * time.Millisecond,
			9 * time.Microsecond},
		{"silent", hitsEvery(0, 0), 10 * time.Millisecond, []int{0, 0}, 10 * time.Millisecond, 0},
		{"hardly ran", hitsEvery(0, 0), 50 * time.Microsecond, []int{0, 0}, 0, 0},
		{"one hit", hitsEvery(1, 0), 50 * time.Microsecond, []int{1, 0}, 0, 3 * time.Microsecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Result
			r.read(test.window, 2, trap, test.armed)
			if !slices.Equal(r.Counts, test.counts) || r.Ran != test.ran || r.Traps != test.traps {
				t.Errorf("%v ran %v traps %v, want %v %v %v", r.Counts, r.Ran, r.Traps, test.counts, test.ran,
					test.traps)
			}
		})
	}
}

// A record of a walk is of this window, or rejected.
func FuzzWalk(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(make([]byte, 200), uint64(0))
	f.Fuzz(func(t *testing.T, record []byte, number uint64) {
		var r Result
		var o bpf.Observation
		r.walk(record, number, &o)
		for _, w := range r.Walks {
			if w.Hit < 0 || w.Hit >= MaxHits || o.Seen.Values[0] != number {
				t.Errorf("%+v", w)
			}
		}
	})
}
