package prom

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"

	"github.com/prometheus/client_golang/prometheus"
)

// A kind is what a rankedUsage counts.
type kind struct {
	total *prometheus.Desc
	// methodsFolded and servicesFolded count what is aggregated; both are nil for kinds without
	// methods.
	methodsFolded, servicesFolded *prometheus.Desc

	measure func(*profile.Profile) usage
	unit    float64 // units of measure in one unit of the series
	floor   float64 // what an entry must have used recently to be worth a series, in units of measure
	labels  func(service string, m method) []string
}

var cpuTime = &kind{
	total: prometheus.NewDesc("vmprof_cpu_seconds_total",
		"CPU time with the method as the leaf ([inlined in M] is M or a method inlined in it), of the hottest "+
			"methods of the busiest services; all others are in method=\"(other)\" or service=\"(other)\", so that "+
			"sums are complete.",
		[]string{"service", "runtime", "method"}, nil),
	methodsFolded: prometheus.NewDesc("vmprof_methods_folded",
		"Distinct methods of the last window that are aggregated in method=\"(other)\".",
		[]string{"service"}, nil),
	servicesFolded: prometheus.NewDesc("vmprof_services_folded",
		"Distinct services of the last window that are aggregated in service=\"(other)\".",
		nil, nil),
	measure: selfTimes,
	unit:    float64(time.Second),
	// Ten samples at the default rate. Noise below it would make a new series per window for ever.
	floor:  float64(100 * time.Millisecond),
	labels: func(service string, m method) []string { return []string{service, m.runtime, m.name} },
}

// callFloor is the number of recent calls that a method needs for a series: as many as the samples
// that make a hot method.
const callFloor = 10

// callCount is the calls that one engine recorded. Engines are ranked apart, as their numbers do
// not compare: the estimates of one would leave the samples of another no places.
func callCount(engine string) *kind {
	of := prometheus.Labels{"engine": engine}
	return &kind{
		total: prometheus.NewDesc("vmprof_calls_total",
			"Calls of the most called methods of the services with most calls, by engine. With basis=\"sampled\" the "+
				"numbers are the observed calls, weighted by the call rate: shares compare, totals are rough. With "+
				"any other basis they are all calls, counted or estimated. Do not compare numbers of different "+
				"engines. Everything else of the engine is in method=\"(other)\" or service=\"(other)\".",
			[]string{"service", "runtime", "basis", "method"}, of),
		methodsFolded: prometheus.NewDesc("vmprof_called_methods_folded",
			"Distinct called methods of the last window that are aggregated in method=\"(other)\" of the engine's "+
				"calls.",
			[]string{"service"}, of),
		servicesFolded: prometheus.NewDesc("vmprof_calling_services_folded",
			"Distinct services with calls in the last window that are aggregated in service=\"(other)\" of the "+
				"engine's calls.",
			nil, of),
		measure: func(p *profile.Profile) usage { return calledMethods(p, engine) },
		unit:    1,
		floor:   callFloor,
		labels:  func(service string, m method) []string { return []string{service, m.runtime, m.basis, m.name} },
	}
}
