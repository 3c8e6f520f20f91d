package usdt

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A phase of a program: the form of its bursts.
type phase struct {
	callee  string
	work    float64 // ns of the guest's own between two calls
	bursts  int
	samples int
}

// TestWeigh compares the weights of two phases of the same duration, one with ten times as many
// calls, with the calls really made.
func TestWeigh(t *testing.T) {
	const passing, stride, hz = 500, 7, 100
	for _, test := range []struct {
		name   string
		phases []phase
		want   map[string]float64 // calls
	}{
		{"equal rates", []phase{{"a", 500, 30, 32}, {"b", 500, 10, 32}},
			map[string]float64{"a": 30 * 20000, "b": 10 * 20000}},
		{"ten times as many", []phase{{"a", 100, 20, 32}, {"b", 1000, 20, 32}},
			map[string]float64{"a": 20 * 100000, "b": 20 * 10000}},
		{"next to no work", []phase{{"a", 0, 10, 32}}, map[string]float64{"a": 10 * 200000}}, // as much as can be told
		{"too short to weigh", []phase{{"a", 100, 20, 4}, {"b", 1000, 20, 4}}, map[string]float64{"a": 80, "b": 80}},
	} {
		var w weigher
		w.tune(profile.Rate{Hz: hz, Burst: profile.Burst{Stride: stride}})
		got := map[string]float64{}
		add := func(_ *bpf.Header, e profile.Edge, weight float64) { got[e.Callee.Value().Function] += weight }
		for _, p := range test.phases {
			for i := range p.bursts {
				for left := p.samples - 1; left >= 0; left-- {
					gaps := uint32(stride * (p.samples - left))
					c := &bpf.NamedCall{Burst: uint64(i), Left: uint32(left), Ticks: 1, Gaps: gaps, Least: passing,
						Spent: uint64(float64(gaps) * (passing + p.work))}
					c.Header.Pid = 4711
					w.take(c, profile.Edge{Callee: symbol.Intern(symbol.Frame{Function: p.callee})}, true, add)
				}
			}
		}
		for callee, want := range test.want {
			if math.Abs(got[callee]/want-1) > 0.001 {
				t.Errorf("%s: %.0f calls of %s, want %.0f", test.name, got[callee], callee, want)
			}
		}
		w.flush(func(*bpf.Header, profile.Edge, float64) { t.Errorf("%s: something is left", test.name) })
	}
}

// A burst whose window was closed for lack of calls stands for the calls made in the window, in
// proportion to its ticks.
func TestWeighCut(t *testing.T) {
	for _, test := range []struct {
		name   string
		number uint64 // number of the burst that was cut
		lasted time.Duration
		gaps   uint32
		want   float64 // calls
	}{
		{"few calls", 1, 20 * time.Millisecond, 13, 2 * 100 * 7 / 20. * 10},
		{"many, and then none", 1, 20 * time.Millisecond, 90, 2 * 100 * 7 / 20. * 10},
		{"another burst was cut", 2, 20 * time.Millisecond, 13, 100},
	} {
		var w weigher
		w.tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 7, Samples: 1000}})
		w.cut(4711, test.number, test.lasted)
		got := 0.0
		add := func(_ *bpf.Header, _ profile.Edge, weight float64) { got += weight }
		for left := uint32(999); left >= 900; left-- {
			c := &bpf.NamedCall{Burst: 1, Left: left, Ticks: 2, Gaps: test.gaps, Least: 500, Spent: 5000}
			c.Header.Pid = 4711
			w.take(c, profile.Edge{}, true, add)
		}
		c := &bpf.NamedCall{Burst: 5, Left: 999}
		c.Header.Pid = 4711
		w.take(c, profile.Edge{}, true, add)
		if math.Abs(got/test.want-1) > 0.001 {
			t.Errorf("%s: %.0f calls, want %.0f", test.name, got, test.want)
		}
	}
}

// The samples of a burst are handed out once: at its end, at the beginning of the next one, or when
// a window ends.
func TestWeighHandsOut(t *testing.T) {
	var (
		w      weigher
		weight float64
	)
	add := func(_ *bpf.Header, _ profile.Edge, n float64) { weight += n }
	take := func(pid uint32, burst uint64, left uint32, ok bool) {
		c := &bpf.NamedCall{Burst: burst, Left: left}
		c.Header.Pid = pid
		w.take(c, profile.Edge{}, ok, add)
	}
	for _, step := range []struct {
		name string
		do   func()
		want float64 // in all
	}{
		{"a burst begins", func() { take(1, 10, 2, true) }, 0},
		{"another process", func() { take(2, 10, 0, true) }, 1},
		{"the next burst, as the last one was cut", func() { take(1, 11, 2, true) }, 2},
		{"a call without a name", func() { take(1, 11, 1, false) }, 2},
		{"the window ends", func() { w.flush(add) }, 3},
		{"nothing is left", func() { w.flush(add) }, 3},
	} {
		if step.do(); weight != step.want {
			t.Errorf("%s: %v samples, want %v", step.name, weight, step.want)
		}
	}
}

// A burst that the ends of windows cut stands for as many calls as one in one piece, wherever they
// cut it, and so does one of more samples than are held. No sample is lost or handed out twice.
func TestWeighParts(t *testing.T) {
	const passing, work, stride, hz = 500, 300, 7, 100
	for _, test := range []struct {
		name    string
		samples int
		cuts    map[int]bool // after so many samples
	}{
		{"in one piece", 32, nil},
		{"a few calls, and the rest", 32, map[int]bool{1: true}},
		{"in the middle", 32, map[int]bool{16: true}},
		{"before the last", 32, map[int]bool{31: true}},
		{"at the end", 32, map[int]bool{32: true}},
		{"many windows", 32, map[int]bool{5: true, 10: true, 11: true, 20: true, 30: true}},
		{"more than are held", 3*calls.MaxHeld + 5, nil},
		{"more than are held, and cut", 3*calls.MaxHeld + 5, map[int]bool{5000: true}},
	} {
		var (
			w    weigher
			got  float64
			seen int
		)
		w.tune(profile.Rate{Hz: hz, Burst: profile.Burst{Stride: stride}})
		add := func(_ *bpf.Header, _ profile.Edge, weight float64) { got, seen = got+weight, seen+1 }
		const bursts = 3
		for i := range bursts {
			for n := 1; n <= test.samples; n++ {
				gaps := uint32(stride * n)
				c := &bpf.NamedCall{Burst: uint64(i), Left: uint32(test.samples - n), Ticks: 1, Gaps: gaps,
					Least: passing,
					Spent: uint64(gaps) * (passing + work)}
				c.Header.Pid = 4711
				w.take(c, profile.Edge{}, true, add)
				if test.cuts[n] {
					w.flush(add)
				}
			}
		}
		if want := bursts * 1e9 / hz / work; math.Abs(got/want-1) > 0.001 || seen != bursts*test.samples {
			t.Errorf("%s: %d samples for %.0f calls, want %d for %.0f", test.name, seen, got, bursts*test.samples, want)
		}
	}
}

// Bursts of ended processes do not use memory forever, and their samples are not lost.
func TestWeighIsBounded(t *testing.T) {
	var w weigher
	seen := 0
	const processes = bpf.MaxUSDTGuests + 10
	add := func(*bpf.Header, profile.Edge, float64) { seen++ }
	for pid := range uint32(processes) {
		c := &bpf.NamedCall{Burst: 1, Left: 5}
		c.Header.Pid = pid
		w.take(c, profile.Edge{}, true, add)
		if len(w.held) > bpf.MaxUSDTGuests {
			t.Fatalf("%d bursts are held", len(w.held))
		}
	}
	if w.flush(add); seen != processes {
		t.Errorf("%d samples, want %d", seen, processes)
	}
}
