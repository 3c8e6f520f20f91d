//go:build linux && amd64

package listener

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// How often a step of Known calls each method, and from where.
var perStep = map[string]map[string]float64{
	"a": {"step": 1}, "b": {"step": 2}, "c": {"g": 3, "h": 1}, "d": {"h": 8}, "e": {"g": 1}, "f": {"h": 2},
	"g": {"step": 1}, "h": {"step": 1},
}

// compiled waits until every method of Known has its final code.
func (k *known) compiled(t *testing.T) (entries map[string]Entry) {
	t.Helper()
	wait.For(t, wait.Long, "all methods are compiled", func() bool {
		entries = k.entries(t)
		for name := range perStep {
			if _, ok := entries[name]; !ok {
				return false
			}
		}
		return true
	})
	return entries
}

// A tally is the hits of one method and of the reference, window by window.
type tally struct {
	hits, reference []float64
	callers         map[string]float64
}

func (y *tally) add(hits, reference int) {
	y.hits = append(y.hits, float64(hits))
	y.reference = append(y.reference, float64(reference))
}

// ratio is that of all hits, with its standard error by the jackknife: windows are independent,
// hits are not.
func (y *tally) ratio() (ratio, standardError float64) {
	sum := func(s []float64) (sum float64) {
		for _, v := range s {
			sum += v
		}
		return sum
	}
	h, r, n := sum(y.hits), sum(y.reference), float64(len(y.hits))
	ratio = h / r
	for i := range y.hits {
		d := (h-y.hits[i])/(r-y.reference[i]) - ratio
		standardError += d * d
	}
	return ratio, math.Sqrt(standardError * (n - 1) / n)
}

// observe opens windows on all methods, three at a time, always including d, until every ratio is
// known well enough.
func (k *known) observe(t *testing.T, entries map[string]Entry) map[string]*tally {
	t.Helper()
	tallies := map[string]*tally{}
	for name := range perStep {
		tallies[name] = &tally{callers: map[string]float64{}}
	}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(perStep)), func(name string) bool { return name == "d" })
	const most = 1500
	for i := range most {
		names := []string{"d", others[i%7], others[(i+1+i/7%3)%7]}
		var set []Entry
		for _, name := range names {
			set = append(set, entries[name])
		}
		// Long enough for tens of steps here, so that it matters little where in a step a window
		// begins and ends.
		r, err := k.bench.Listen(t.Context(), k.Guest, set, Window{Duration: 2 * time.Millisecond, MaxHits: MaxHits})
		if err != nil {
			t.Fatal(err)
		}
		for s, n := range r.Sites() {
			tallies[names[s.Entry]].callers[k.method(t, s.Caller)] += float64(n)
		}
		for j, name := range names[1:] {
			tallies[name].add(r.Count(j+1), r.Count(0))
		}
		tallies["d"].add(r.Count(0), r.Count(0))
		if i%70 == 69 && k.known(tallies) {
			return tallies
		}
	}
	t.Logf("not known well after %d windows", most)
	return tallies
}

// tolerance is how far the ratios may be off: four of the standard errors that observe waits for,
// plus half a step at either end of a window of some twenty steps.
const tolerance = 0.05

func (k *known) known(tallies map[string]*tally) bool {
	for _, y := range tallies {
		if ratio, e := y.ratio(); !(e < 0.006*ratio) && len(y.hits) > 0 {
			return false
		}
	}
	return true
}

// Relative call rates, and callers, of a program that makes known numbers of calls.
func TestLiveKnown(t *testing.T) {
	breakpoints.Need(t)
	b := newBench(t)
	for _, jdk := range needs.JDKs(t) {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%v with %d threads", jdk, threads), func(t *testing.T) {
				k := b.startKnown(t, jdk, threads, "-XX:-TieredCompilation")
				entries := k.compiled(t)
				before := b.Cost()
				tallies := k.observe(t, entries)
				for name, callers := range perStep {
					k.compare(t, name, callers, tallies[name])
				}
				c := b.Cost()
				windows := len(tallies["d"].hits)
				t.Logf("%d windows, %d hits of %v each, arming %v a window", windows, c.Hits-before.Hits, c.HitTime,
					(c.Arming-before.Arming)/time.Duration(windows))
			})
		}
	}
}

func (k *known) compare(t *testing.T, name string, want map[string]float64, y *tally) {
	t.Helper()
	sum, observed := 0.0, 0.0
	for caller, n := range want {
		sum += n
		observed += y.callers[caller]
	}
	ratio, standardError := y.ratio()
	got := 8 * ratio
	t.Logf("%s: %.3f calls a step, want %v (%+.1f%%, standard error %.1f%%) from %v", name, got, sum, 100*(got/sum-1),
		100*standardError/ratio, y.callers)
	if math.Abs(got/sum-1) > tolerance {
		t.Errorf("%s: %.3f calls a step, want %v within %v", name, got, sum, tolerance)
	}
	if len(y.callers) != len(want) {
		t.Errorf("%s: callers %v, want %v", name, y.callers, want)
	}
	for caller, n := range want {
		if share := y.callers[caller] / observed; math.Abs(share-n/sum) > tolerance*n/sum {
			t.Errorf("%s: %.3f of the calls are from %s, want %.3f", name, share, caller, n/sum)
		}
	}
}

// Callers in the interpreter are named with the bytecode index of the call.
func TestLiveInterpretedCaller(t *testing.T) {
	breakpoints.Need(t)
	b := newBench(t)
	for _, jdk := range needs.JDKs(t) {
		t.Run(jdk.String(), func(t *testing.T) {
			k := b.startKnown(t, jdk, 1, "-XX:-TieredCompilation", "-XX:CompileCommand=exclude,Known::step",
				"-XX:CompileCommand=exclude,Known::work")
			entries := k.compiled(t)
			r, err := b.Listen(t.Context(), k.Guest, []Entry{entries["b"], entries["g"]},
				Window{Duration: MaxDuration, MaxHits: MaxHits})
			if err != nil {
				t.Fatal(err)
			}
			bcis := map[int]map[int32]int{0: {}, 1: {}}
			for _, h := range r.Hits {
				if name := k.method(t, h.Caller); h.Caller.Kind() != bpf.FrameInterpreted || name != "step" {
					t.Fatalf("caller %v: %s", h.Caller, name)
				}
				bcis[h.Entry][h.Caller.BCI()]++
			}
			if len(bcis[0]) != 2 || len(bcis[1]) != 1 {
				t.Errorf("b is called at %v, g at %v: want two places and one", bcis[0], bcis[1])
			}
		})
	}
}

// A version that a better one has replaced only jumps to it, and is not watched.
func TestLiveReplacedVersion(t *testing.T) {
	breakpoints.Need(t)
	b := newBench(t)
	for _, jdk := range needs.JDKs(t) {
		t.Run(jdk.String(), func(t *testing.T) {
			k := b.startKnown(t, jdk, 1)
			k.Current = nil // only the code itself shows it
			replaced := 0
			wait.For(t, wait.Long, "a version is replaced", func() bool {
				for name, versions := range k.versions(t) {
					for _, c := range versions {
						if c.InUse || c.EntryBCI >= 0 {
							continue
						}
						e := Entry{Address: c.VerifiedEntry, Version: c.Version}
						_, err := b.Listen(t.Context(), k.Guest, []Entry{e},
							Window{Duration: time.Millisecond, MaxHits: 10})
						if !errors.Is(err, ErrJump) {
							t.Errorf("replaced version of %s: %v", name, err)
						}
						replaced++
					}
				}
				return replaced > 0
			})
			t.Logf("%d replaced versions", replaced)
		})
	}
}
