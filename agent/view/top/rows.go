package top

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A selection is what rows are of.
type selection struct {
	service string        // "" for all
	span    time.Duration // the latest windows of this length together, and at least one
}

// within are the windows of the last span before the end of the newest one.
func within(windows []*window, span time.Duration) []*window {
	if len(windows) == 0 {
		return nil
	}
	end := windows[len(windows)-1].end
	i := len(windows) - 1
	// A window counts if more than half of it is in the span.
	for i > 0 && end.Sub(windows[i-1].start.Add(windows[i-1].end.Sub(windows[i-1].start)/2)) < span {
		i--
	}
	return windows[i:]
}

// observed is for how long windows were observed, all together.
func observed(windows []*window) (sum time.Duration) {
	for _, w := range windows {
		sum += w.observed
	}
	return sum
}

// An interval is a 95 % confidence interval of a share, 0 to 1.
type interval struct{ low, high float64 }

const normal95 = 1.96

// shareInterval is Wilson's interval of a share of which k of n independent samples are (Wilson,
// JASA 22, 1927). It is right for few samples as well.
func shareInterval(k, n uint64) interval {
	if n == 0 {
		return interval{0, 1}
	}
	const z2 = normal95 * normal95
	p, size := float64(k)/float64(n), float64(n)
	middle := (p + z2/(2*size)) / (1 + z2/size)
	half := normal95 / (1 + z2/size) * math.Sqrt(p*(1-p)/size+z2/(4*size*size))
	return interval{max(middle-half, 0), min(middle+half, 1)}
}

// A row is a line of the table of methods, threads or events.
type row struct {
	method      methodName
	label       string // for threads, the group; for events, the class or what was waited for
	samples     uint64
	value       float64 // for events: the main value
	share       float64 // share of what all rows of the selection have
	interval    interval
	caller      string  // method that is its caller most often; for threads, the most frequent method
	callerShare float64 // share of the row, 0 to 1
}

// group is a sum of cells with their callers.
type group struct {
	n       uint64
	value   float64
	callers map[method]float64
}

// A rowKey is what rows of a table are by.
type rowKey struct {
	method method
	label  text
}

// table adds up cells by key, and counts what by returns as the caller. weight is what shares are
// of.
func table(
	windows []*window, service string, by func(*cell) (key rowKey, caller method), weight func(*cell) float64,
) (map[rowKey]*group, *group) {
	groups, all := map[rowKey]*group{}, &group{}
	for _, w := range windows {
		for i := range w.cells {
			c := &w.cells[i]
			if service != "" && c.service.Value() != service {
				continue
			}
			key, caller := by(c)
			g := groups[key]
			if g == nil {
				g = &group{callers: map[method]float64{}}
				groups[key] = g
			}
			g.n += c.n
			g.value += c.value
			g.callers[caller] += weight(c)
			all.n += c.n
			all.value += c.value
		}
	}
	return groups, all
}

// rows orders groups by weight, the heaviest first.
func rows(groups map[rowKey]*group, total float64, weight func(*group) float64) []row {
	list := make([]row, 0, len(groups))
	for key, g := range groups {
		r := row{samples: g.n, value: g.value}
		if key.method != (method{}) {
			r.method = key.method.Value()
		}
		if key.label != (text{}) {
			r.label = key.label.Value()
		}
		if total > 0 {
			r.share = weight(g) / total
		}
		r.caller, r.callerShare = g.busiest(weight(g))
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.share, a.share), strings.Compare(a.method.name, b.method.name),
			strings.Compare(a.label, b.label),
			cmp.Compare(a.method.code, b.method.code))
	})
	return list
}

// busiest is the caller with the largest weight, and its share; "" if there is none.
func (g *group) busiest(total float64) (name string, share float64) {
	best := -1.0
	for of, weight := range g.callers {
		if of == (method{}) {
			continue
		}
		if n := of.Value().name; weight > best || weight == best && n < name {
			name, best = n, weight
		}
	}
	if best < 0 || total <= 0 {
		return name, 0
	}
	return name, best / total
}

// methods are the methods by CPU time, and the number of samples that shares are of.
func (m *Model) methods(sel selection) ([]row, uint64) {
	return m.samples(sel, func(c *cell) (rowKey, method) { return rowKey{method: c.method}, c.caller })
}

// threads are the groups of threads by CPU time, each with its hottest method.
func (m *Model) threads(sel selection) ([]row, uint64) {
	return m.samples(sel, func(c *cell) (rowKey, method) { return rowKey{label: c.thread}, c.method })
}

func (m *Model) samples(sel selection, by func(*cell) (rowKey, method)) ([]row, uint64) {
	groups, all := table(within(m.cpu, sel.span), sel.service, by, func(c *cell) float64 { return float64(c.n) })
	list := rows(groups, float64(all.n), func(g *group) float64 { return float64(g.n) })
	for i := range list {
		list[i].interval = shareInterval(list[i].samples, all.n)
	}
	return list, all.n
}

// eventRows are the methods and classes of events by their main value, and how many seconds were
// observed. Intervals are those of shares of as many events as were observed, as if all were alike.
func (m *Model) eventRows(kind profile.EventKind, sel selection) ([]row, float64) {
	windows := m.recent(kind, sel.span)
	groups, all := table(windows, sel.service, func(c *cell) (rowKey, method) {
		return rowKey{c.method, c.thread}, c.caller
	}, func(c *cell) float64 { return c.value })
	list := rows(groups, all.value, func(g *group) float64 { return g.value })
	for i := range list {
		list[i].interval = valueInterval(list[i], all)
	}
	return list, observed(windows).Seconds()
}

// valueInterval is the interval of a row's share of a value. A row of k events of n varies by 1/√k
// of itself, and the rest likewise.
func valueInterval(r row, all *group) interval {
	if r.samples == 0 || all.value <= 0 {
		return interval{0, 1}
	}
	s := r.share
	variance := (1 - s) * (1 - s) * s * s / float64(r.samples)
	if rest := all.n - r.samples; rest > 0 {
		variance += s * s * (1 - s) * (1 - s) / float64(rest)
	}
	half := normal95 * math.Sqrt(variance)
	return interval{max(s-half, 0), min(s+half, 1)}
}
