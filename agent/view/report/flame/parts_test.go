package flame

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// windowed is a profile with many contexts in each of some windows of a second.
func windowed(t *testing.T, windows, contexts int) *flameProfile {
	t.Helper()
	p := newFlameProfile(timeColumns...)
	m := &stored.Metadata{}
	for w := range windows {
		m.Windows = append(m.Windows, stored.Window{Number: int64(w + 1), Start: time.Unix(int64(1e9)+int64(w), 0),
			Duration: time.Second})
		for c := range contexts {
			n := int64(1 + (w+c)%3)
			s := p.add(1, "shop", "main", []string{"j:run", fmt.Sprint("j:m", c)}, n, 10*n)
			s.NumLabel[stored.LabelWindow] = []int64{int64(w + 1)}
		}
	}
	if err := m.Store(&p.Profile); err != nil {
		t.Fatal(err)
	}
	return p
}

// The values by time add up to those of the whole, also in a cut tree and where windows are added
// up to have room, and there are not too many.
func TestFlameParts(t *testing.T) {
	for _, test := range []struct{ windows, contexts, cut, parts int }{{6, 10, 0, 6}, {6, 500, 50, 6},
		{200, 250, 0, 100}, {3, 10, 0, 0}, {4, 10_000, 0, 0}} {
		f := flamesOf(t, &windowed(t, test.windows, test.contexts).Profile)[0]
		if test.cut > 0 {
			f = f.Cut(test.cut)
		}
		p := f.parts()
		if p == nil || test.parts == 0 {
			if p != nil || test.parts != 0 {
				t.Errorf("%+v: parts %v", test, p != nil)
			}
			continue
		}
		if len(p.Start) != test.parts || p.Each != 10 || p.Self != nil || p.Start[0] != 1e12 ||
			p.End[len(p.End)-1] != 1e12+1000*int64(test.windows) {
			t.Errorf("%+v: %d parts from %d to %d, each %v", test, len(p.Start), p.Start[0], p.End[len(p.End)-1],
				p.Each)
		}
		sums, cells := make([]float64, len(f.nodes)), 0
		for i, nodes := range p.Node {
			at := int32(0)
			for j, step := range nodes {
				at += step
				sums[at+1] += p.Each * p.Count[i][j]
				cells++
			}
		}
		for at, n := range f.nodes {
			if math.Abs(sums[at]-n.value[0]) > 1e-6 {
				t.Fatalf("%+v: node %d has %v in parts, %v in all", test, at, sums[at], n.value[0])
			}
		}
		if cells > maxFlameCells {
			t.Errorf("%+v: %d values", test, cells)
		}
	}
	if f := flamesOf(t, &windowed(t, 6, 10).Profile)[0]; f.ForService("shop", 0).parts() != nil || f.timeline().Parts == nil {
		t.Error("what is merged has parts, or the timeline has none")
	}
}
