package estimate

import (
	"math"
	"testing"
)

func TestHeardRate(t *testing.T) {
	open := func(n int, length, hits float64) (list []windowObservation) {
		for range n {
			list = append(list, windowObservation{length: length, hits: hits, free: length})
		}
		return list
	}
	full := func(length float64) windowObservation {
		return windowObservation{length: length, hits: 48, free: length / 10, full: true}
	}
	for name, tt := range map[string]struct {
		windows []windowObservation
		want    float64 // calls a second
		ok      bool
	}{
		"nothing":               {},
		"silence":               {windows: open(10, 5e-3, 0)},
		"one window":            {windows: open(1, 5e-3, 5)},
		"too short":             {windows: open(3, 1e-3, 5)},
		"steady":                {windows: open(10, 5e-3, 5), want: 1000, ok: true},
		"a full window in some": {windows: append(open(10, 5e-3, 5), full(5e-3))},
		"one full in many":      {windows: append(open(99, 5e-3, 5), full(5e-3)), want: 1000, ok: true},
		"longer ones full":      {windows: append(open(10, 5e-3, 5), full(20e-3), full(20e-3)), want: 1000, ok: true},
		"all full":              {windows: []windowObservation{full(5e-3), full(5e-3), full(5e-3)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := codeObservations{windows: tt.windows}
			got, variance, ok := h.rate()
			if ok != tt.ok || math.Abs(got-tt.want) > tt.want/100 {
				t.Errorf("got %.0f, %t, want %.0f, %t", got, ok, tt.want, tt.ok)
			}
			if ok && variance < minSpread {
				t.Errorf("variance %v", variance)
			}
		})
	}
}

// TestBurstsAreLessCertain: the same number of hits in fewer windows has a larger variance.
func TestBurstsAreLessCertain(t *testing.T) {
	var steady, bursts codeObservations
	for i := range 20 {
		steady.add(windowObservation{length: 5e-3, free: 5e-3, hits: 2})
		bursts.add(windowObservation{length: 5e-3, free: 5e-3, hits: float64(i/19) * 40})
	}
	_, a, _ := steady.rate()
	_, b, ok := bursts.rate()
	if !ok || b < 4*a {
		t.Errorf("variances %.2f and %.2f, %t", a, b, ok)
	}
}

func TestFrequencyOfFullWindows(t *testing.T) {
	j := joint{entries: 10, calls: 20, withCalls: 5, full: 5, most: 48}
	if f, _, ok := j.frequency(); !ok || f != 2 {
		t.Errorf("got %v, %t, want 2", f, ok)
	}
	j.calls = 400 // windows ended in the middle of what an entry calls
	if f, _, ok := j.frequency(); ok {
		t.Errorf("got %v from windows with no room for it", f)
	}
}

// TestSilenceIsABound: no hits bound the rate, and more windows make the bound tighter.
func TestSilenceIsABound(t *testing.T) {
	silent := func(n int, free float64) *codeObservations {
		var h codeObservations
		for range n {
			h.add(windowObservation{length: free, armed: free, free: free})
		}
		return &h
	}
	if most, _ := silent(1, minSilence/2).atMost(); most != 0 {
		t.Errorf("a moment of silence bounds the rate to %.0f", most)
	}
	few, unsure := silent(2, 5e-3).atMost()
	many, sure := silent(20, 5e-3).atMost()
	if math.Abs(few-300) > 1 || math.Abs(many-30) > 1 || sure >= unsure {
		t.Errorf("bounds %.0f (%.2f) and %.0f (%.2f), want 3 calls in 10 ms and in 100 ms", few, unsure, many, sure)
	}
	h := silent(3, 5e-3)
	h.add(windowObservation{length: 6e-3, armed: 6e-3, free: 6e-3, hits: 24, full: true})
	if most, _ := h.atMost(); most < 3/15e-3-1 {
		t.Errorf("bound %.0f, below that of the windows that were not full", most)
	}
	if least := h.atLeast(); math.Abs(least-24/21e-3) > 1 {
		t.Errorf("at least %.0f", least)
	}
}
