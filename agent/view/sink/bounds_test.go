package sink

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Windows are full of samples, or of their frames, before memory is.
func TestWindowsFullOfSamples(t *testing.T) {
	a, b := symbol.Intern(symbol.Frame{Function: "a"}), symbol.Intern(symbol.Frame{Function: "b"})
	for _, test := range []struct {
		samples, frames int
		want            int // windows until it is full; each has 2 samples with 3 frames
	}{{math.MaxInt, math.MaxInt, stored.MaxWindows - 1}, {6, math.MaxInt, 3}, {5, math.MaxInt, 3}, {math.MaxInt, 6, 2},
		{math.MaxInt, 7, 3}} {
		w := NewWindows(Time)
		w.max.samples, w.max.frames = test.samples, test.frames
		for !w.Full() {
			tree := new(cct.Tree[symbol.Symbol])
			tree.Add([]symbol.Symbol{a, b}, 1)
			tree.Add([]symbol.Symbol{b}, 1)
			if err := w.Add(&profile.Profile{Processes: []*profile.Process{{PID: 1,
				Threads: []*profile.Thread{{TID: 1, Tree: tree}}}}}); err != nil {
				t.Fatal(err)
			}
		}
		if w.Len() != test.want {
			t.Errorf("%+v: full after %d windows", test, w.Len())
		}
	}
}
