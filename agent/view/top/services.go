package top

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A serviceRow is a line of the header.
type serviceRow struct {
	name      string // "" for all services together
	processes int
	managed   bool                       // a VM runs in it
	cpus      float64                    // busy CPUs
	samples   uint64                     // samples of the span
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
				of.samples += s.samples
				for kind, ns := range s.code {
					of.code[kind] += ns
				}
				if length > 0 {
					of.cpus += s.cpu() / 1e9 / length
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
		if row.cpus > 0 {
			for kind := range row.code {
				row.code[kind] /= 1e9 * row.cpus * length
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

// addEvents adds the rates of events of the span, where they are recorded now and a VM may have
// some.
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

// recent are the windows of events of a span that ends now, by the newest window of any kind: none
// if the events are no longer recorded.
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
				result[name][i] += s.cpu() / 1e9
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

// fillGaps repeats a value in cells that are narrower than a window; before the first value nothing
// is known.
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
