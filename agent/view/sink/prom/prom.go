// Package prom shows profiles and the agent's own health as Prometheus metrics.
//
//	e, err := prom.New(source, nil)
//	e.Observe(window)                // each closed window, in order
//	e.Gatherer().Gather()            // a scrape
//
// What a target names (methods, services) becomes label values, and is therefore cleaned and
// bounded in length and number. No process id, thread, line or hash ever is a label.
// docs/reference/metrics.md lists every metric.
package prom

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/program"
	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Defaults of Options.
const (
	DefaultMaxMethods  = 50
	DefaultMaxServices = 50
)

// Options tune an Exporter. A nil *Options means the defaults.
type Options struct {
	// Of CPU time, and of the calls of each engine; the services of each kind of events, too:
	MaxMethods  int // series of each service with a method's name; 0 means DefaultMaxMethods, less means none
	MaxServices int // services with series of their own; 0 means DefaultMaxServices, less means none

	NoTime  bool                     // CPU time is not sampled: leave out its metrics
	Engines []string                 // call engines that have series of calls; none if calls are not sampled
	Events  [profile.EventKinds]bool // recorded kinds of events: those with a total for each service get series
	History func() history.Stats     // statistics of serve --history-dir; nil without a history
	Rules   func() []rule.State      // states of the rules of serve --rule; nil without rules
	Program func() program.State     // state of the program of serve --window-exec; nil without a program
	// Passwords counts requests with a password, by result; nil without passwords.
	Passwords func() map[string]uint64
	// TLSFailures counts the times that TLS could not be configured; nil without a configuration.
	TLSFailures func() uint64
	Build       Build
}

// Build says which agent this is, in vmprof_build_info.
type Build struct{ Version, Revision, GoVersion string }

// An Exporter is the set of all metrics of one agent. Its methods may be called from any goroutine.
type Exporter struct {
	source   Source
	hot      *rankedUsage   // nil if time is not sampled
	called   []*rankedUsage // one for each engine, none if calls are not sampled
	events   []*rankedUsage // one for each of eventTotals that is recorded
	windows  *windowTally
	registry *prometheus.Registry
}

// New makes an exporter with a registry of its own.
func New(source Source, o *Options) (*Exporter, error) {
	if o == nil {
		o = new(Options)
	}
	e := &Exporter{
		source:   source,
		windows:  new(windowTally),
		registry: prometheus.NewRegistry(),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "vmprof_build_info",
		Help: "Always 1; its labels are the version of the agent.",
		ConstLabels: prometheus.Labels{
			"version":   label(o.Build.Version),
			"revision":  label(o.Build.Revision),
			"goversion": label(o.Build.GoVersion),
		},
	})
	build.Set(1)
	all := []prometheus.Collector{
		newHealth(source, e.windows, o.History),
		build,
		// The agent's own CPU time, memory and file descriptors.
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		// Only what helps to find a leak: the memory statistics are twenty series that nobody
		// reads.
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
	}
	if !o.NoTime {
		e.hot = newRankedUsage(cpuTime, orDefault(o.MaxMethods, DefaultMaxMethods),
			orDefault(o.MaxServices, DefaultMaxServices))
		all = append(all, e.hot)
	}
	if o.Rules != nil {
		all = append(all, ruleCollector{o.Rules})
	}
	if o.Program != nil {
		all = append(all, programCollector{o.Program}, customCollector{o.Program})
	}
	if o.Passwords != nil {
		all = append(all, passwordCollector{o.Passwords})
	}
	if o.TLSFailures != nil {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "vmprof_http_tls_config_failures_total",
			Help: "Times that TLS could not be configured from --web.config.file and the files that it names: at a " +
				"handshake that failed, and every 10 s while it is so. New TLS connections are refused meanwhile; " +
				"the log has the error.",
		}, func() float64 { return float64(o.TLSFailures()) }))
	}
	services := orDefault(o.MaxServices, DefaultMaxServices)
	all = append(all, &serviceInfo{source: source, ranked: e.hot, most: infosPerService * services})
	for _, engine := range o.Engines {
		c := newRankedUsage(callCount(engine), orDefault(o.MaxMethods, DefaultMaxMethods),
			orDefault(o.MaxServices, DefaultMaxServices))
		e.called = append(e.called, c)
		all = append(all, c)
	}
	for _, t := range eventTotals() {
		if !o.Events[t.of] {
			continue
		}
		c := newRankedUsage(t.kind, 0, orDefault(o.MaxServices, DefaultMaxServices))
		e.events = append(e.events, c)
		all = append(all, c)
	}
	for _, c := range all {
		if err := e.registry.Register(guarded{c}); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return e, nil
}

// Observe counts a closed window. Windows come in order, none twice.
func (e *Exporter) Observe(p *profile.Profile) {
	services := e.source.Stats().Services
	if e.hot != nil {
		e.hot.Observe(p, services)
	}
	for _, c := range e.called {
		c.Observe(p, services)
	}
	for _, c := range e.events {
		c.Observe(p, services)
	}
	e.windows.add(p)
}

// Gatherer is what a scrape reads.
func (e *Exporter) Gatherer() prometheus.Gatherer { return e.registry }

func orDefault(n, def int) int {
	switch {
	case n == 0:
		return def
	case n < 0:
		return 0
	}
	return n
}
