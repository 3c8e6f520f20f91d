package page

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

var testCosts = costs{hit: 650, skip: 3, tick: 7 * time.Microsecond}

// A phase of a program: calls of one kind, and how long each takes without sampling.
type phase struct {
	name string
	call time.Duration
	cpu  time.Duration
}

func (p phase) edge() profile.Edge {
	return profile.Edge{Callee: symbol.Intern(symbol.Frame{Function: p.name})}
}

// play runs phases in turn under ticks of 100 Hz and returns the samples as the kernel side would
// report them.
func play(phases []phase, rounds int, stride, samples uint32) (out []bpf.Call, callee []profile.Edge) {
	random := rand.New(rand.NewPCG(5, 6))
	c := bpf.Call{Attachment: 1}
	for range rounds {
		for _, p := range phases {
			for range int(p.cpu / (10 * time.Millisecond)) {
				c.Burst++
				c.Stride, c.Ticks = stride, 1
				c.Made = 1 + random.Uint32N(stride)
				for range samples {
					hits := (c.Made-1)/stride + 1
					c.Spent = uint64(testCosts.tick) + uint64(c.Made)*uint64(p.call) +
						uint64(hits-1)*uint64(testCosts.hit) + uint64(c.Made-hits)*uint64(testCosts.skip)
					out = append(out, c)
					callee = append(callee, p.edge())
					c.Made += stride
				}
			}
		}
	}
	return out, callee
}

// A program spends the same time with few calls as with many. Without weights, both phases get the
// same number of samples.
func TestWeigherPhases(t *testing.T) {
	slow := phase{"slow", 2 * time.Microsecond, 200 * time.Millisecond}
	fast := phase{"fast", 10 * time.Nanosecond, 200 * time.Millisecond}
	var w weigher
	w.tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 127, Samples: 64}})
	got := map[string]float64{}
	add := func(_ *bpf.Header, e profile.Edge, n float64) { got[e.Callee.Value().Function] += n }
	stream, edges := play([]phase{slow, fast}, 3, 127, 64)
	for i := range stream {
		w.take(&stream[i], edges[i], true, testCosts, add)
	}
	w.flush(testCosts, add)
	for _, p := range []phase{slow, fast} {
		want := 3 * float64(p.cpu) / float64(p.call)
		if n := got[p.name]; math.Abs(n-want) > 0.02*want {
			t.Errorf("%s: %.0f calls, want %.0f", p.name, n, want)
		}
	}
}

// sample is a call some way into a burst.
func sample(burst uint64, stride, made, ticks uint32, spent time.Duration) *bpf.Call {
	return &bpf.Call{Attachment: 1, Burst: burst, Stride: stride, Made: made, Ticks: ticks, Spent: uint64(spent)}
}

func TestWeigher(t *testing.T) {
	e := phase{name: "e"}.edge()
	const ms, us = time.Millisecond, time.Microsecond
	for _, test := range []struct {
		name  string
		rate  profile.Burst
		calls []*bpf.Call
		cost  costs
		want  float64 // calls in all
		held  bool    // until the flush
	}{
		{name: "a burst that took a tick's time stands for what it saw", rate: profile.Burst{Stride: 100, Samples: 3},
			calls: []*bpf.Call{sample(1, 100, 50, 1, 2*ms), sample(1, 100, 150, 1, 5*ms),
				sample(1, 100, 250, 1, 10*ms)}, want: 250},
		{name: "and its ticks for as much each", rate: profile.Burst{Stride: 100, Samples: 3},
			calls: []*bpf.Call{sample(1, 100, 50, 1, 2*ms), sample(1, 100, 150, 3, 25*ms),
				sample(1, 100, 250, 4, 40*ms)}, want: 250},
		{name: "a long wait for the first call counts", rate: profile.Burst{Stride: 100, Samples: 2},
			calls: []*bpf.Call{sample(1, 100, 100, 101, 1000*ms), sample(1, 100, 200, 101, 1010*ms)}, want: 200},
		{name: "what was cut has its part of the tick", rate: profile.Burst{Stride: 100, Samples: 4},
			calls: []*bpf.Call{sample(1, 100, 100, 1, 10*ms)}, want: 25, held: true},
		{name: "and all of the ticks that it saw go by", rate: profile.Burst{Stride: 100, Samples: 4},
			calls: []*bpf.Call{sample(1, 100, 100, 11, 10*ms)}, want: 1025, held: true},
		{name: "a burst without an end is handed out when the next begins, of which not enough is known",
			rate:  profile.Burst{Stride: 100, Samples: 64},
			calls: []*bpf.Call{sample(1, 100, 100, 1, 10*ms), sample(2, 1000, 1, 1, 10)}, want: 101, held: true},
		{name: "a calibration is no sample, but its tick counts", rate: profile.Burst{Stride: 100, Samples: 1},
			calls: []*bpf.Call{sample(1, 1, 1, 1, ms), sample(2, 100, 100, 1, 10*ms)}, want: 200},
		{name: "too small to be weighed", rate: profile.Burst{Stride: 1, Samples: 2},
			calls: []*bpf.Call{sample(1, 1, 1, 1, ms), sample(1, 1, 2, 1, 2*ms)}, want: 2},
		{name: "a burst that took less time than its hits is left out, but not its tick",
			rate: profile.Burst{Stride: 100, Samples: 3}, cost: costs{hit: 650},
			calls: []*bpf.Call{sample(1, 100, 210, 1, 500), sample(2, 100, 100, 1, 2*ms), sample(2, 100, 200, 1, 4*ms),
				sample(2, 100, 300, 1, 10*ms+2*650)}, want: 600},
		{name: "half of what hits take is possible", rate: profile.Burst{Stride: 100, Samples: 3},
			cost:  costs{hit: 10 * us},
			calls: []*bpf.Call{sample(1, 100, 300, 1, 10*us)}, want: 300 * 10000 / 5},
		{name: "no time at all is taken for what could be measured", rate: profile.Burst{Stride: 100, Samples: 1},
			calls: []*bpf.Call{sample(1, 100, 100, 1, 0)}, want: 1e7},
	} {
		t.Run(test.name, func(t *testing.T) {
			var w weigher
			w.tune(profile.Rate{Hz: 100, Burst: test.rate})
			var got float64
			add := func(_ *bpf.Header, _ profile.Edge, n float64) { got += n }
			for _, c := range test.calls {
				w.take(c, e, true, test.cost, add)
			}
			if early := math.Abs(got-test.want) < 1e-6*test.want; early == test.held {
				t.Errorf("before the flush: %g calls", got)
			}
			w.flush(test.cost, add)
			if math.Abs(got-test.want) > 1e-6*test.want {
				t.Errorf("%g calls, want %g", got, test.want)
			}
			w.flush(test.cost, add)
			if math.Abs(got-test.want) > 1e-6*test.want {
				t.Errorf("%g calls after a second flush", got)
			}
		})
	}
}

// A burst that the ends of windows cut stands for as many calls as one in one piece, wherever they
// cut it. Nothing is handed out twice, and the next burst answers its own tick only.
func TestWeigherParts(t *testing.T) {
	const rounds, stride, samples = 5, 127, 64
	p := phase{"p", 100 * time.Nanosecond, 10 * time.Millisecond}
	stream, edges := play([]phase{p}, rounds, stride, samples)
	for _, cuts := range [][]int{{}, {1}, {32}, {63}, {1, 2, 3}, {16, 32, 48}, {20, 20, 64}} {
		var w weigher
		w.tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: stride, Samples: samples}})
		var got float64
		edgesOut := 0
		add := func(_ *bpf.Header, _ profile.Edge, n float64) { got, edgesOut = got+n, edgesOut+1 }
		for i := range stream {
			w.take(&stream[i], edges[i], true, testCosts, add)
			for _, cut := range cuts {
				if i%samples == cut-1 {
					w.flush(testCosts, add)
				}
			}
		}
		want := rounds * float64(p.cpu) / float64(p.call)
		if math.Abs(got-want) > 0.001*want || edgesOut != rounds*samples {
			t.Errorf("cut after samples %v: %d samples for %.0f calls, want %d for %.0f", cuts, edgesOut, got,
				rounds*samples, want)
		}
	}
}

// The rate of calls may change within a burst: its parts still stand for as many calls as the
// whole. A part whose first call came at once does not get an excessive weight.
func TestWeigherUnevenParts(t *testing.T) {
	const us = time.Microsecond
	burst := []*bpf.Call{sample(1, 100, 1, 1, 7*us), sample(1, 100, 101, 1, 100*us), sample(1, 100, 201, 1, 150*us),
		sample(1, 100, 301, 1, 200*us)}
	weigh := func(cut int) (total, largest float64) {
		var w weigher
		w.tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 100, Samples: 4}})
		add := func(_ *bpf.Header, _ profile.Edge, n float64) { total, largest = total+n, max(largest, n) }
		for i, c := range burst {
			if w.take(c, phase{name: "e"}.edge(), true, testCosts, add); i+1 == cut {
				w.flush(testCosts, add)
			}
		}
		return total, largest
	}
	whole, each := weigh(0)
	for cut := 1; cut < len(burst); cut++ {
		if total, largest := weigh(cut); math.Abs(total-whole) > 1e-6*whole || largest > 2*each {
			t.Errorf("cut after %d samples: %.0f calls, %.0f of one sample; in one piece %.0f, %.0f", cut, total,
				largest, whole, each)
		}
	}
}

// Samples beyond the limit are handed out, not lost.
func TestWeigherHoldsLittle(t *testing.T) {
	const samples = 3*calls.MaxHeld + 5
	p := phase{"p", 100 * time.Nanosecond, 10 * time.Millisecond}
	stream, edges := play([]phase{p}, 1, 7, samples)
	var w weigher
	w.tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 7, Samples: samples}})
	var got float64
	n := 0
	for i := range stream {
		w.take(&stream[i], edges[i], true, testCosts, func(_ *bpf.Header, _ profile.Edge, weight float64) {
			got,
				n = got+weight, n+1
		})
	}
	if want := 1e5; n != samples || math.Abs(got-want) > 0.001*want {
		t.Errorf("%d samples for %.0f calls, want %d for %.0f", n, got, samples, want)
	}
}

// Whatever the records of a burst contain, weights are finite and not negative.
func FuzzWeigher(f *testing.F) {
	f.Add(uint32(100), uint32(50), uint32(1), uint64(1e6), uint32(150), uint32(2), uint64(2e6), true)
	f.Add(uint32(0), uint32(0), uint32(0), uint64(0), uint32(0), uint32(0), uint64(0), false)
	f.Add(uint32(1), uint32(1<<32-1), uint32(1<<32-1), uint64(1<<64-1), uint32(0), uint32(0), uint64(0), true)
	f.Fuzz(func(t *testing.T, stride, made1, ticks1 uint32, spent1 uint64, made2, ticks2 uint32, spent2 uint64,
		flush bool) {
		var w weigher
		w.tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 127, Samples: 64}})
		add := func(_ *bpf.Header, _ profile.Edge, n float64) {
			if !(n >= 0) || math.IsInf(n, 0) {
				t.Fatalf("weight %g", n)
			}
		}
		e := phase{name: "e"}.edge()
		w.take(sample(1, stride, made1, ticks1, time.Duration(spent1)), e, true, testCosts, add)
		if flush {
			w.flush(testCosts, add)
		}
		w.take(sample(1, stride, made2, ticks2, time.Duration(spent2)), e, true, testCosts, add)
		w.flush(testCosts, add)
	})
}
