package prom

import (
	"strings"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"

	"github.com/prometheus/client_golang/prometheus"
)

// goneWindows is for how many windows in a row a service must have been absent until its series are
// removed. One would lose the last window of a process that exits between two scrapes.
const goneWindows = 2

// rankedUsage is a collector of something that services or their methods use up, such as CPU time,
// fed with consecutive windows. It ranks them, as only the first ones have series of their own.
//
// At most maxServices services have series of their own, each with at most maxMethods methods (see
// ranking for who gets a place) and one method="(other)" for each runtime; one more
// service="(other)" takes the rest. The invariant, which makes sums over any label true: each unit
// of each window is added to exactly one counter, at the moment when its window is observed. So
//
//   - a counter never goes back;
//   - a method that gets a place starts with that window; what it used before was counted in (other);
//   - a method that loses its place keeps its last value and its series ends; what it uses later is counted in (other).
//     Nothing is moved, as that would count it twice;
//   - the sum of the last values of all series that ever were is the sum of all windows.
//
// A method that comes back goes on where it stopped while the ranking remembers it. Otherwise, and
// for a service that exited and came back, it starts from zero with a new created timestamp, which
// is a counter reset to Prometheus.
//
// Memory: maxServices * keepFactor rankings of maxMethods * keepFactor names of maxLabel bytes,
// about 8 MB at the defaults and when every name is as long as can be. CPU time has one collector,
// calls have one for each engine, and events have one for each of eventTotals, without methods.
type rankedUsage struct {
	kind       *kind
	maxMethods int

	mu       sync.Mutex
	services *ranking[string, *service]
	absent   map[string]int     // windows in a row without the service; keys are those of services
	other    map[method]counter // counters of service="(other)", where method is, too
	folded   int                // services in service="(other)" in the last window
}

// newRankedUsage returns a collector of a kind for at most so many methods a service and so many
// services. Zero is allowed and leaves only (other).
func newRankedUsage(k *kind, maxMethods, maxServices int) *rankedUsage {
	return &rankedUsage{
		kind:       k,
		maxMethods: maxMethods,
		services:   newRanking[string, *service](maxServices, k.floor, strings.Compare),
		absent:     make(map[string]int),
		other:      make(map[method]counter),
	}
}

// Observe counts a window. Windows come in order, none twice. alive holds the services that have a
// running process although they may have had no sample in this window, as profile.Stats.Services
// does.
func (h *rankedUsage) Observe(p *profile.Profile, alive map[string]int) {
	used := h.kind.measure(p)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(used, alive)
	h.services.update(p.Duration, func(yield func(string, uint64) bool) {
		for name, methods := range used {
			if name != other && !yield(name, sum(methods)) {
				return
			}
		}
	})
	for name, e := range h.services.entries {
		if !e.placed {
			continue
		}
		if e.value == nil {
			e.value = newService(h.maxMethods, h.kind.floor)
		}
		e.value.observe(used[name], p) // also when it was idle: its ranks age
	}
	h.folded = 0
	for name, methods := range used {
		if h.services.get(name) != nil {
			continue
		}
		h.folded++
		for m, n := range methods {
			m.name = other
			h.other[m] = h.other[m].plus(n, p.Start)
		}
	}
}

// has reports whether a service has series of its own.
func (h *rankedUsage) has(service string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.services.get(service) != nil
}

// forget drops the services that have been gone for long enough.
func (h *rankedUsage) forget(used usage, alive map[string]int) {
	present := make(map[string]bool, len(alive)+len(used))
	for name := range alive {
		present[label(name)] = true
	}
	for name := range used {
		present[name] = true
	}
	for name := range h.services.entries {
		if present[name] {
			delete(h.absent, name)
			continue
		}
		if h.absent[name]++; h.absent[name] >= goneWindows {
			delete(h.services.entries, name)
		}
	}
	for name := range h.absent {
		if h.services.entries[name] == nil { // gone, or cut from the ranking
			delete(h.absent, name)
		}
	}
}

// Describe implements prometheus.Collector.
func (h *rankedUsage) Describe(ch chan<- *prometheus.Desc) {
	ch <- h.kind.total
	if h.kind.methodsFolded != nil {
		ch <- h.kind.methodsFolded
		ch <- h.kind.servicesFolded
	}
}

// Collect implements prometheus.Collector.
func (h *rankedUsage) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	emit := func(c counter, service string, m method) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(h.kind.total, prometheus.CounterValue,
			float64(c.value)/h.kind.unit, c.created, h.kind.labels(service, m)...)
	}
	for m, c := range h.other {
		emit(c, other, m)
	}
	for name, e := range h.services.entries {
		if !e.placed {
			continue
		}
		for m, me := range e.value.methods.entries {
			if me.placed {
				emit(me.value, name, m)
			}
		}
		for m, c := range e.value.other {
			emit(c, name, m)
		}
		if h.kind.methodsFolded != nil {
			ch <- prometheus.MustNewConstMetric(h.kind.methodsFolded, prometheus.GaugeValue, float64(e.value.folded),
				name)
		}
	}
	if h.kind.servicesFolded == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(h.kind.servicesFolded, prometheus.GaugeValue, float64(h.folded))
}
