package prom

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// goneWindows is for how many windows in a row a service must have been absent until its series are removed. One
// would lose the last window of a process that exits between two scrapes.
const goneWindows = 2

var (
	cpuSeconds = prometheus.NewDesc("vmprof_cpu_seconds_total",
		"CPU time while the method was innermost, of the hottest methods of the busiest services; everything else is in method=\"(other)\" or service=\"(other)\", so that sums stay true.",
		[]string{"service", "runtime", "method"}, nil)
	methodsFolded = prometheus.NewDesc("vmprof_methods_folded",
		"Distinct methods of the last window that are in method=\"(other)\".",
		[]string{"service"}, nil)
	servicesFolded = prometheus.NewDesc("vmprof_services_folded",
		"Distinct services of the last window that are in service=\"(other)\".",
		nil, nil)
)

// HotMethods is a collector of self CPU time by method, fed with consecutive windows.
//
// At most maxServices services have series of their own, each with at most maxMethods methods (see ranking for
// who gets a place) and one method="(other)" for each runtime; one more service="(other)" takes the rest. The
// invariant, which makes sums over any label true: each nanosecond of each window is added to exactly one counter,
// at the moment when its window is observed. So
//
//   - a counter never goes back;
//   - a method that gets a place starts with the time of that window; what it used before was counted in (other);
//   - a method that loses its place keeps its last value and its series ends; later time is counted in (other).
//     Nothing is moved, as that would count it twice;
//   - the sum of the last values of all series that ever were is the CPU time of all windows.
//
// A method that comes back goes on where it stopped while the ranking remembers it. Otherwise, and for a service
// that exited and came back, it starts from zero with a new created timestamp, which is a counter reset to
// Prometheus.
//
// Memory: maxServices * keepFactor rankings of maxMethods * keepFactor names of maxLabel bytes, about 8 MB at
// the defaults and when every name is as long as can be.
type HotMethods struct {
	maxMethods int

	mu       sync.Mutex
	services *ranking[string, *service]
	absent   map[string]int     // windows in a row without the service; keys are those of services
	other    map[string]counter // of service="(other)", by runtime
	folded   int                // services in service="(other)" in the last window
}

// NewHotMethods makes a collector for at most so many methods a service and so many services. Zero is allowed and
// leaves only (other).
func NewHotMethods(maxMethods, maxServices int) *HotMethods {
	return &HotMethods{
		maxMethods: maxMethods,
		services:   newRanking[string, *service](maxServices, strings.Compare),
		absent:     make(map[string]int),
		other:      make(map[string]counter),
	}
}

// Observe counts a window. Windows come in order, none twice. alive holds the services that have a running process
// although they may have had no sample in this window, as agent.Stats.Services does.
func (h *HotMethods) Observe(p *agent.Profile, alive map[string]int) {
	times := measure(p)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(times, alive)
	h.services.update(p.Duration, func(yield func(string, uint64) bool) {
		for name, methods := range times {
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
			e.value = newService(h.maxMethods)
		}
		e.value.observe(times[name], p) // also when it was idle: its ranks age
	}
	h.folded = 0
	for name, methods := range times {
		if h.services.get(name) != nil {
			continue
		}
		h.folded++
		for m, ns := range methods {
			h.other[m.runtime] = h.other[m.runtime].plus(ns, p.Start)
		}
	}
}

// forget drops the services that have been gone for long enough.
func (h *HotMethods) forget(times selfTimes, alive map[string]int) {
	present := make(map[string]bool, len(alive)+len(times))
	for name := range alive {
		present[label(name)] = true
	}
	for name := range times {
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
func (h *HotMethods) Describe(ch chan<- *prometheus.Desc) {
	ch <- cpuSeconds
	ch <- methodsFolded
	ch <- servicesFolded
}

// Collect implements prometheus.Collector.
func (h *HotMethods) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	emit := func(c counter, service, runtime, method string) {
		seconds := time.Duration(c.nanoseconds).Seconds()
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(cpuSeconds, prometheus.CounterValue, seconds, c.created, service, runtime, method)
	}
	for runtime, c := range h.other {
		emit(c, other, runtime, other)
	}
	for name, e := range h.services.entries {
		if !e.placed {
			continue
		}
		for m, me := range e.value.methods.entries {
			if me.placed {
				emit(me.value, name, m.runtime, m.name)
			}
		}
		for runtime, c := range e.value.other {
			emit(c, name, runtime, other)
		}
		ch <- prometheus.MustNewConstMetric(methodsFolded, prometheus.GaugeValue, float64(e.value.folded), name)
	}
	ch <- prometheus.MustNewConstMetric(servicesFolded, prometheus.GaugeValue, float64(h.folded))
}
