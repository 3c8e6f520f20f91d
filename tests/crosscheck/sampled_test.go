package main

import (
	"maps"
	"math"
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
