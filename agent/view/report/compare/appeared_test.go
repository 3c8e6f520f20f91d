package compare_test

import (
	"bytes"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// Subtrees that only one side has are named by their roots, unless they may be chance.
func TestAppeared(t *testing.T) {
	path := func(methods string, weight uint64) sinktest.Path {
		return sinktest.Path{Methods: methods, Times: 1, Weight: weight}
	}
	a := []sinktest.Path{path("m a", 460), path("m old", 40)}
	for _, tt := range []struct {
		name string
		b    []sinktest.Path
		want string
	}{
		{"new and gone", []sinktest.Path{path("m a", 400), path("m new deep", 90), path("m new", 10)},
			"new: new under m, 0 → 20 % of the samples\ngone: old under m, 8 → 0 % of the samples\n\n"},
		{"few samples", []sinktest.Path{path("m a", 480), path("m old", 17), path("m new", 3)}, ""},
		{"the same", a, ""},
	} {
		var out bytes.Buffer
		before, after := sinktest.OfPaths(a...), sinktest.OfPaths(tt.b...)
		if err := compare.Appeared(&out, compare.Named{Name: "A", Profile: storedOf(before)},
			compare.Named{Name: "B", Profile: storedOf(after)}, new(compare.Options)); err != nil {
			t.Fatal(err)
		}
		if out.String() != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, &out, tt.want)
		}
	}
}
