package top

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// A change is a row of the difference between now and before, in CPU time per time: 1 is one busy
// CPU.
type change struct {
	method      methodName
	now, before float64
	within      float64 // half of the 95 % interval of now - before
	caller      string  // now, or before if there is none
	callerShare float64
}

func (c *change) delta() float64 { return c.now - c.before }

// certain reports whether the change is larger than its interval.
func (c *change) certain() bool { return math.Abs(c.delta()) > c.within }

// baselineTime is how long the windows are, all together, that the present is compared with.
const baselineTime = 30 * time.Second

// diff compares the span with the oldest windows, the largest change first. ago is how long their
// middle was before the middle of the span; it is 0 if there are none yet.
func (m *Model) diff(sel selection) (list []change, ago time.Duration) {
	now := within(m.cpu, sel.span)
	if len(now) == 0 {
		return nil, 0
	}
	var before []*window
	for _, w := range m.cpu[:len(m.cpu)-len(now)] {
		if w.end.Sub(m.cpu[0].start) > baselineTime {
			break
		}
		before = append(before, w)
	}
	if len(before) == 0 {
		return nil, 0
	}
	by := func(c *cell) (rowKey, method) { return rowKey{method: c.method}, c.caller }
	weight := func(c *cell) float64 { return float64(c.n) }
	a, _ := table(before, sel.service, by, weight)
	b, _ := table(now, sel.service, by, weight)
	keys := map[rowKey]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	rate := func(g *group, windows []*window) (rate, variance float64) {
		one := windows[len(windows)-1].period.Seconds() / observed(windows).Seconds()
		n := 0.0
		if g != nil {
			n = float64(g.n)
		}
		// A count of events that come by themselves varies by its root. A count of nothing may have
		// been some.
		return n * one, max(n, 1) * one * one
	}
	for key := range keys {
		c := change{method: key.method.Value()}
		var va, vb float64
		c.before, va = rate(a[key], before)
		c.now, vb = rate(b[key], now)
		c.within = normal95 * math.Sqrt(va+vb)
		of := b[key]
		if of == nil {
			of = a[key]
		}
		c.caller, c.callerShare = of.busiest(float64(of.n))
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b change) int {
		if a.certain() != b.certain() {
			if a.certain() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(math.Abs(b.delta()), math.Abs(a.delta())),
			strings.Compare(a.method.name, b.method.name),
			cmp.Compare(a.method.code, b.method.code))
	})
	return list, middle(now).Sub(middle(before))
}

// middle is the time between the first window's start and the last one's end.
func middle(windows []*window) time.Time {
	first, last := windows[0], windows[len(windows)-1]
	return first.start.Add(last.end.Sub(first.start) / 2)
}
