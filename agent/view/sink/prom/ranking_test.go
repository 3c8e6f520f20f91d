package prom

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// seconds is one round of a ranking: the CPU seconds added to each key before it settles.
type seconds map[string]float64

func (r *ranking[K, V]) placedKeys() []K {
	var keys []K
	for k, e := range r.entries {
		if e.placed {
			keys = append(keys, k)
		}
	}
	return keys
}

func round(r *ranking[string, int], window time.Duration, s seconds) string {
	r.update(window, func(yield func(string, uint64) bool) {
		for k, v := range s {
			if !yield(k, uint64(v*1e9)) {
				return
			}
		}
	})
	return strings.Join(slices.Sorted(slices.Values(r.placedKeys())), " ")
}

func TestRanking(t *testing.T) {
	for _, tt := range []struct {
		name   string
		places int
		window time.Duration
		rounds []seconds
		want   []string // keys with a place after each round
	}{
		{"the hottest get the places", 2, 0,
			[]seconds{{"a": 1, "b": 3, "c": 2}},
			[]string{"b c"}},
		{"a tie goes by name", 2, 0,
			[]seconds{{"c": 1, "a": 1, "b": 1}},
			[]string{"a b"}},
		{"too little to tell gets none", 2, 0,
			[]seconds{{"a": 1, "b": 0.099}, {"b": 0.001}},
			[]string{"a", "a b"}},
		{"hotter is not enough, twice as hot is", 1, 0,
			[]seconds{{"a": 1}, {"b": 1.9}, {"b": 0.1}},
			[]string{"a", "a", "b"}},
		{"the coldest loses its place", 2, 0,
			[]seconds{{"a": 1, "b": 2}, {"c": 10}},
			[]string{"a b", "b c"}},
		{"several at once", 2, 0,
			[]seconds{{"a": 1, "b": 2}, {"c": 10, "d": 9, "e": 8}},
			[]string{"a b", "c d"}},
		{"idle keeps its place", 1, 10 * time.Hour,
			[]seconds{{"a": 1}, {}, {}},
			[]string{"a", "a", "a"}},
		{"the past fades by half in a half-life", 1, halfLife,
			[]seconds{{"a": 4}, {"b": 3.9}, {"b": 0.1}},
			[]string{"a", "a", "b"}}, // a: 4, 2, 1; b: 0, 3.9, 2.05
		{"no places", 0, 0,
			[]seconds{{"a": 1}},
			[]string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRanking[string, int](tt.places, cpuTime.floor, strings.Compare)
			for i, s := range tt.rounds {
				if got := round(r, tt.window, s); got != tt.want[i] {
					t.Errorf("round %d: %q have a place, want %q", i, got, tt.want[i])
				}
			}
		})
	}
}

// A stream of ever new names must not make ever new series: neither when each is rare, nor when
// each is hot.
func TestRankingDoesNotFlap(t *testing.T) {
	const places, rounds = 10, 3600 // ten hours of windows
	for _, tt := range []struct {
		name    string
		each    float64 // CPU seconds of each new name
		maximum int     // number of keys that ever had a place
	}{
		{"rare names", 0.09, 0},
		// A place is worth the floor at least, and changes hands for twice the score, which halves
		// in halfLife.
		{"hot names", 0.5, places * (1 + int(rounds*10*time.Second/halfLife))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRanking[string, int](places, cpuTime.floor, strings.Compare)
			ever := make(map[string]bool)
			for i := range rounds {
				s := make(seconds)
				for j := range 20 {
					s[fmt.Sprint("m", i, ".", j)] = tt.each
				}
				round(r, 10*time.Second, s)
				for _, k := range r.placedKeys() {
					ever[k] = true
				}
				if len(r.entries) > keepFactor*places {
					t.Fatalf("round %d: %d entries, want at most %d", i, len(r.entries), keepFactor*places)
				}
			}
			if len(ever) > tt.maximum {
				t.Errorf("%d series in all, want at most %d", len(ever), tt.maximum)
			}
		})
	}
}

// Two methods that trade the lead every window both keep their series.
func TestRankingIsSticky(t *testing.T) {
	r := newRanking[string, int](2, cpuTime.floor, strings.Compare)
	busy := []seconds{{"a": 9, "b": 1, "c": 1}, {"a": 1, "b": 9, "c": 1}}
	round(r, 10*time.Second, seconds{"a": 5, "b": 5, "c": 1})
	for i := range 100 {
		if got := round(r, 10*time.Second, busy[i%2]); got != "a b" {
			t.Fatalf("round %d: %q have a place, want a and b", i, got)
		}
	}
	if _, ok := maps.Collect(maps.All(r.entries))["c"]; !ok {
		t.Error("c is not remembered although there is room")
	}
}
