package top

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
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

// A serviceRow is a line of the header.
type serviceRow struct {
	name      string // "" for all services together
	processes int
	managed   bool                       // a VM runs in it
	cpus      float64                    // busy CPUs
	samples   uint64                     // of the span
	code      [profile.CodeKinds]float64 // shares of the CPU time, 0 to 1
	alloc     float64                    // bytes a second; NaN: not recorded
	delay     float64                    // seconds of waiting a second, over all threads; NaN: not recorded
	queued    float64                    // seconds of waiting for a CPU a second, over all threads; NaN: not recorded
	stopped   float64                    // share of the time in safepoint pauses, of one process; NaN: not recorded
	spark     []float64                  // busy CPUs in the last minute, oldest first; NaN: unknown
}

// sparkTime is what a sparkline is of.
const sparkTime = time.Minute

// services are the rows of the header, the busiest first. The one at first is the sum of all.
func (m *Model) services(span time.Duration, cells int) []serviceRow {
	windows := within(m.cpu, span)
	length := observed(windows).Seconds()
	all := &serviceRow{managed: true}
	rows := map[text]*serviceRow{}
	stopped := map[*serviceRow]time.Duration{}
	sampled := map[*serviceRow]time.Duration{}
	for _, w := range windows {
		for i := range w.services {
			s := &w.services[i]
			row := rows[s.name]
			if row == nil {
				row = &serviceRow{name: s.name.Value()}
				rows[s.name] = row
			}
			row.processes = max(row.processes, s.processes)
			row.managed = row.managed || s.managed
			if s.hasPauses {
				stopped[row] += s.stopped
				sampled[row] += w.observed * time.Duration(s.processes)
			}
			for _, of := range []*serviceRow{all, row} {
				for kind, n := range s.code {
					of.code[kind] += float64(n)
					of.samples += n
					if length > 0 {
						of.cpus += float64(n) * w.period.Seconds() / length
					}
				}
			}
		}
	}
	list := []*serviceRow{all}
	for _, row := range rows {
		all.processes += row.processes
		row.stopped = math.NaN()
		if sampled[row] > 0 {
			row.stopped = stopped[row].Seconds() / sampled[row].Seconds()
		}
		list = append(list, row)
	}
	all.stopped = math.NaN()
	slices.SortFunc(list[1:], func(a, b *serviceRow) int {
		return cmp.Or(cmp.Compare(b.cpus, a.cpus), strings.Compare(a.name, b.name))
	})
	m.addEvents(list, span)
	sparks := m.sparks(cells)
	result := make([]serviceRow, 0, len(list))
	for _, row := range list {
		if row.samples > 0 {
			for kind := range row.code {
				row.code[kind] /= float64(row.samples)
			}
		}
		row.spark = sparks[row.name]
		if row.spark == nil {
			row.spark = make([]float64, cells)
		}
		result = append(result, *row)
	}
	return result
}

// addEvents adds the rates of events of the span, where they are recorded now and a VM may have some.
func (m *Model) addEvents(rows []*serviceRow, span time.Duration) {
	rates := func(kind profile.EventKind, of func(*serviceSums) float64) func(name string) float64 {
		windows := m.recent(kind, span)
		length := observed(windows).Seconds()
		sums, total := map[string]float64{}, 0.0
		for _, w := range windows {
			for i := range w.services {
				sums[w.services[i].name.Value()] += of(&w.services[i])
				total += of(&w.services[i])
			}
		}
		sums[""] = total
		return func(name string) float64 {
			if length == 0 {
				return math.NaN()
			}
			return sums[name] / length
		}
	}
	main := func(s *serviceSums) float64 { return s.main }
	alloc, delay := rates(profile.Allocations, main), rates(profile.Locks, main)
	queued := rates(profile.OffCPU, func(s *serviceSums) float64 { return s.queued })
	for _, row := range rows {
		row.alloc, row.delay, row.queued = math.NaN(), math.NaN(), queued(row.name)/float64(time.Second)
		if row.managed {
			row.alloc, row.delay = alloc(row.name), delay(row.name)/float64(time.Second)
		}
	}
}

// recent are the windows of events of a span that ends now, by the newest window of any kind: none if the events are no longer recorded.
func (m *Model) recent(kind profile.EventKind, span time.Duration) []*window {
	windows := within(m.events[kind], span)
	if len(windows) > 0 && len(m.cpu) > 0 && m.cpu[len(m.cpu)-1].end.Sub(windows[len(windows)-1].end) > span {
		return nil
	}
	return windows
}

// sparks are the busy CPUs of the last minute by service, "" for all.
func (m *Model) sparks(cells int) map[string][]float64 {
	result := map[string][]float64{}
	if len(m.cpu) == 0 || cells == 0 {
		return result
	}
	end, width := m.cpu[len(m.cpu)-1].end, sparkTime/time.Duration(cells)
	lengths := make([]float64, cells) // seconds, by cell
	at := func(w *window) int {
		age := end.Sub(w.start.Add(w.end.Sub(w.start) / 2))
		return cells - 1 - int(age/width)
	}
	windows := within(m.cpu, sparkTime)
	for _, w := range windows {
		i := at(w)
		if i < 0 {
			continue
		}
		lengths[i] += w.observed.Seconds()
		for j := range w.services {
			s := &w.services[j]
			for _, name := range []string{"", s.name.Value()} {
				if result[name] == nil {
					result[name] = make([]float64, cells)
				}
				result[name][i] += float64(s.samples()) * w.period.Seconds()
			}
		}
	}
	for _, spark := range result {
		for i := range spark {
			if lengths[i] == 0 {
				spark[i] = math.NaN()
				continue
			}
			spark[i] /= lengths[i]
		}
		fillGaps(spark)
	}
	return result
}

// fillGaps repeats a value in cells that are narrower than a window; before the first value nothing is known.
func fillGaps(spark []float64) {
	last, from := math.NaN(), -1
	for i, v := range spark {
		switch {
		case !math.IsNaN(v):
			last, from = v, i
		case from >= 0 && i-from <= 1:
			spark[i] = last
		}
	}
}

// An interval is a 95 % confidence interval of a share, 0 to 1.
type interval struct{ low, high float64 }

const normal95 = 1.96

// shareInterval is Wilson's interval of a share of which k of n independent samples are (Wilson, JASA 22, 1927). It is right for few
// samples as well.
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
	label       string // of threads, the group; of events, the class or what was waited for
	samples     uint64
	value       float64 // of events: the main value
	share       float64 // of what all rows of the selection have
	interval    interval
	caller      string  // that is on top of the method most often; of threads, the method that is
	callerShare float64 // of the row, 0 to 1
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

// table adds up cells by key, and counts what by returns as the caller. weight is what shares are of.
func table(windows []*window, service string, by func(*cell) (key rowKey, caller method), weight func(*cell) float64) (map[rowKey]*group, *group) {
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
		return cmp.Or(cmp.Compare(b.share, a.share), strings.Compare(a.method.name, b.method.name), strings.Compare(a.label, b.label),
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

// eventRows are the methods and classes of events by their main value, and how many seconds were observed. Intervals are those of shares
// of as many events as were observed, as if all were alike.
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

// valueInterval is the interval of a row's share of a value. A row of k events of n varies by 1/√k of itself, and the rest likewise.
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

// A change is a row of the difference between now and before, in CPU time per time: 1 is one busy CPU.
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

// diff compares the span with the oldest windows, the largest change first. ago is how long their middle was before the middle of the
// span; it is 0 if there are none yet.
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
		// A count of events that come by themselves varies by its root. A count of nothing may have been some.
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
		return cmp.Or(cmp.Compare(math.Abs(b.delta()), math.Abs(a.delta())), strings.Compare(a.method.name, b.method.name),
			cmp.Compare(a.method.code, b.method.code))
	})
	return list, middle(now).Sub(middle(before))
}

// middle is the time between the first window's start and the last one's end.
func middle(windows []*window) time.Time {
	first, last := windows[0], windows[len(windows)-1]
	return first.start.Add(last.end.Sub(first.start) / 2)
}

// A callerRow is a line of the tree of callers.
type callerRow struct {
	method methodName
	indent int     // grows where callers branch: long chains of one caller each are not indented
	share  float64 // of the method's weight
}

// Bounds of the tree of callers.
const (
	maxCallerDepth = 64
	maxCallerNodes = 1 << 16
)

// A content is what a table is made of: CPU time, or one kind of events.
type content struct {
	events bool
	kind   profile.EventKind
}

// windows are those of the span.
func (m *Model) windows(of content, span time.Duration) []*window {
	if of.events {
		return m.recent(of.kind, span)
	}
	return within(m.cpu, span)
}

// contexts calls f for the contexts of a process that have a weight of their own.
func (c content) contexts(p *profile.Process, f func(tree *cct.Tree[symbolize.Symbol], id cct.NodeID, weight uint64)) {
	if !c.events {
		for _, thread := range p.Threads {
			if thread.Tree == nil {
				continue
			}
			for id, n := range thread.Tree.Nodes() {
				if n.Self > 0 {
					f(thread.Tree, id, n.Self)
				}
			}
		}
		return
	}
	for _, events := range p.Events {
		if events.Kind != c.kind {
			continue
		}
		for i := range events.Rows {
			if row := &events.Rows[i]; !c.kind.Apart(&row.EventLabels) && !(c.kind == profile.OffCPU && row.What == cause.Idle) {
				f(events.Tree, row.Context, uint64(row.Values[c.kind.Main()]))
			}
		}
	}
}

// callers is the tree of those who call a method, the heaviest first, by what the method has itself. Branches of less than least of
// that, 0 to 1, are left out.
func (m *Model) callers(in content, sel selection, of methodName, least float64) []callerRow {
	tree := cct.Tree[method]{Limit: maxCallerNodes}
	var path []method
	for _, p := range m.profiles(in, sel) {
		m.names = map[symbolize.Symbol]method{}
		for _, process := range p.Processes {
			in.contexts(process, func(t *cct.Tree[symbolize.Symbol], id cct.NodeID, weight uint64) {
				if in.events && in.kind == profile.OffCPU {
					id = m.program(t, id)
				}
				if m.method(t, id).Value() != of {
					return
				}
				path = path[:0]
				for at := id; at != cct.Root && len(path) < maxCallerDepth; at = t.Node(at).Parent {
					path = append(path, m.named(t.Node(at).Key))
				}
				slices.Reverse(path) // the outermost frame of this tree is the method
				tree.Add(path, weight)
			})
		}
	}
	totals, total := tree.Totals(), float64(tree.Total())
	shown := func(id cct.NodeID) bool { return total > 0 && float64(totals[id]) >= least*total && totals[id] > 0 }
	indents := make([]int, tree.Len()+1)
	var list []callerRow
	tree.Walk(tree.Heaviest(totals, compareMethods), func(id cct.NodeID, n cct.Node[method]) bool {
		if id == cct.Root {
			return true
		}
		if !shown(id) {
			return false
		}
		siblings := 0
		for sibling := range tree.Children(n.Parent) {
			if shown(sibling) {
				siblings++
			}
		}
		indents[id] = indents[n.Parent]
		if siblings > 1 || n.Depth == 2 {
			indents[id]++
		}
		list = append(list, callerRow{n.Key.Value(), indents[id], float64(totals[id]) / total})
		return true
	})
	return list
}

func compareMethods(a, b method) int {
	return cmp.Or(strings.Compare(a.Value().name, b.Value().name), cmp.Compare(a.Value().code, b.Value().code))
}

// profiles returns the profiles of the span, oldest first, with the processes of the selected service only. Those for which there was
// no room are missing.
func (m *Model) profiles(of content, sel selection) (list []*profile.Profile) {
	for _, w := range m.windows(of, sel.span) {
		if w.profile == nil {
			continue
		}
		p := *w.profile
		if sel.service != "" {
			p.Processes = slices.DeleteFunc(slices.Clone(p.Processes), func(of *profile.Process) bool { return serviceOf(of) != sel.service })
		}
		list = append(list, &p)
	}
	return list
}
