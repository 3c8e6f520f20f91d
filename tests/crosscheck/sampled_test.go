package main

import (
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

// Inlined methods count for the method that was compiled, too; stubs and native code do not count,
// as JFR has no samples there.
func TestSampledBy(t *testing.T) {
	jit, interpreter := &pprof.Mapping{ID: 1, File: "[jit:HotSpot]"},
		&pprof.Mapping{ID: 2, File: "[interpreter:HotSpot]"}
	stub, libc := &pprof.Mapping{ID: 3, File: "[stub:HotSpot]"}, &pprof.Mapping{ID: 4, File: "/lib/libc.so.6"}
	at := func(in *pprof.Mapping, methods ...string) *pprof.Location {
		location := &pprof.Location{Mapping: in}
		for _, method := range methods {
			location.Line = append(location.Line, pprof.Line{Function: &pprof.Function{Name: method}})
		}
		return location
	}
	stack := func(count int64, locations ...*pprof.Location) *pprof.Sample {
		return &pprof.Sample{Value: []int64{count}, Location: locations}
	}
	got := sampledBy(&pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}},
		Sample: []*pprof.Sample{
			stack(1, at(jit, "a.B.inner", "a.B.outer"), at(interpreter, "a.B.main")),
			stack(2, at(jit, "[inlined in a.B.outer]", "a.B.outer"), at(interpreter, "a.B.main")),
			stack(3, at(interpreter, "a.B.main")),
			stack(4, at(stub, "arraycopy"), at(jit, "a.B.outer"), at(interpreter, "a.B.main")),
			stack(5, at(libc, "read"), at(interpreter, "a.B.main")),
		},
	})
	if want := (events.Weights{"a.B.outer": 3, "a.B.main": 3}); !maps.Equal(got.compiled, want) {
		t.Errorf("compiled: %v, want %v", got.compiled, want)
	}
	if want := (events.Weights{"a.B.inner": 1, "[inlined in a.B.outer]": 2, "a.B.main": 3}); !maps.Equal(got.innermost,
		want) {
		t.Errorf("innermost: %v, want %v", got.innermost, want)
	}
	if share := got.unnamed(); math.Abs(share-100./3) > 1e-9 {
		t.Errorf("%.1f %% not named", share)
	}
}

// Two large samples of one distribution are alike, two small ones less; of one method they are
// equal.
func TestAlike(t *testing.T) {
	flat := func(methods, samples int) events.Weights {
		w := events.Weights{}
		for i := range methods {
			w[string(rune('a'+i))] = float64(samples) / float64(methods)
		}
		return w
	}
	one, few, many := events.Alike(flat(1, 100), flat(1, 50)), events.Alike(flat(20, 100), flat(20, 100)),
		events.Alike(flat(20, 100_000), flat(20, 100_000))
	if math.Abs(one-100) > 1e-9 || many < 98 || few < 60 || few > 95 {
		t.Errorf("one method %.1f, few samples %.1f, many %.1f", one, few, many)
	}
}

// Of a flat distribution most methods have no sample, or one. What samples of it are alike must not
// depend on the methods that were seen.
func TestAlikeFlat(t *testing.T) {
	const methods, samples, pairs = 5000, 600, 20
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func() events.Weights {
		w := events.Weights{}
		for drawn := 0; drawn < samples; {
			method := rng.IntN(methods)
			if rng.Float64() < 20/float64(method+20) { // the share of the n-th method is as 1/(n+20)
				w[strconv.Itoa(method)]++
				drawn++
			}
		}
		return w
	}
	is, expected := 0., 0.
	for range pairs {
		a, b := draw(), draw()
		is += a.Overlap(b) / pairs
		expected += events.Alike(a, b) / pairs
	}
	if math.Abs(is-expected) > 2 {
		t.Errorf("two samples of one distribution overlap by %.1f %%, expected %.1f", is, expected)
	}
}
