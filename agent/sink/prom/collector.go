package prom

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	ready = prometheus.NewDesc("vmprof_ready",
		"1 if all programs are loaded and attached, and what they tell is recorded.", nil, nil)
	bpfDuration = prometheus.NewDesc("vmprof_bpf_sample_duration_seconds",
		"Time in the sampling program for each run: the sum over all CPUs, and the number of runs.", nil, nil)
)

// health is the collector of everything that a Source tells, and of the accounts of closed windows.
type health struct {
	source   Source
	windows  *windowTally
	families []family
	descs    []*prometheus.Desc // of families
}

func newHealth(source Source, windows *windowTally) *health {
	h := &health{source: source, windows: windows, families: families()}
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
	s := snapshot{h.source.Counts(), h.source.Stats(), h.windows.totals()}
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
