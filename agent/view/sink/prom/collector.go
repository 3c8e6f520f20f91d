package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
)

var (
	ready = prometheus.NewDesc("vmprof_ready",
		"1 if all programs are loaded and attached and the agent records, otherwise 0.", nil, nil)
	bpfDuration = prometheus.NewDesc("vmprof_bpf_sample_duration_seconds",
		"Time in the sampling program: the sum over all CPUs, and the number of runs.", nil, nil)
)

// health is the collector of everything that a Source reports, and of the accounts of closed
// windows.
type health struct {
	source   Source
	windows  *windowTally
	history  func() history.Stats // nil without a history
	families []family
	descs    []*prometheus.Desc // descriptions of families
}

func newHealth(source Source, windows *windowTally, history func() history.Stats) *health {
	h := &health{source: source, windows: windows, history: history, families: families()}
	for _, f := range h.families {
		var labels []string
		if f.label != "" {
			labels = []string{f.label}
		}
		h.descs = append(h.descs, prometheus.NewDesc(f.name, f.help, labels, nil))
	}
	return h
}

// Describe implements prometheus.Collector.
func (h *health) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range h.descs {
		ch <- d
	}
	ch <- ready
	ch <- bpfDuration
}

// Collect implements prometheus.Collector.
func (h *health) Collect(ch chan<- prometheus.Metric) {
	counts, err := h.source.Counts()
	if err != nil { // none rather than counters that go back
		ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	s := snapshot{counts, h.source.Stats(), h.windows.totals(), nil}
	if h.history != nil {
		stats := h.history()
		s.history = &stats
	}
	for i, f := range h.families {
		f.read(s, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(h.descs[i], f.kind, value, labels...)
		})
	}
	var up float64
	if s.Ready {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(ready, gaugeKind, up)
	if !s.Ticks {
		return
	}
	ch <- prometheus.MustNewConstSummary(bpfDuration, s.BPFRuns, s.BPFTime.Seconds(), nil)
}

// A guarded collector reports a panic as an error of the scrape: the names in metrics come from
// processes. Without it the panic would end the agent, as the registry collects in goroutines of
// its own.
type guarded struct{ prometheus.Collector }

// Collect implements prometheus.Collector.
func (g guarded) Collect(ch chan<- prometheus.Metric) {
	err := proc.Catch(func() error {
		g.Collector.Collect(ch)
		return nil
	})
	if err != nil {
		ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
	}
}
