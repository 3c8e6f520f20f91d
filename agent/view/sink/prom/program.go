package prom

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/view/program"
)

// customPrefix begins the names of metrics that the program of --window-exec reports. None of the
// agent's own has it.
const customPrefix = "vmprof_custom_"

var (
	execRuns = prometheus.NewDesc("vmprof_window_exec_runs_total",
		"Answers of the program of --window-exec, one for each window and recorded kind of events. Its metrics begin "+
			"with vmprof_custom_.", nil, nil)
	execFailed = prometheus.NewDesc("vmprof_window_exec_failures_total",
		"Windows without an answer, by cause: busy (the one before was not done), timeout (killed), exit (a code or "+
			"a signal), output (too long; killed), format (no metrics, too many, or labels that are refused), start "+
			"(not found, or others may write to it) or runner (nothing can run until the agent is started again).",
		[]string{"cause"}, nil)
	execSeries = prometheus.NewDesc("vmprof_window_exec_series", "Series that the program of --window-exec has.", nil,
		nil)
)

// programCollector has the metrics about a program, and those that it reports.
type programCollector struct{ state func() program.State }

// Describe implements prometheus.Collector. What the program reports is not known before.
func (c programCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- execRuns
	ch <- execFailed
	ch <- execSeries
}

// Collect implements prometheus.Collector.
func (c programCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.state()
	ch <- prometheus.MustNewConstMetric(execRuns, counterKind, float64(s.Runs))
	ch <- prometheus.MustNewConstMetric(execSeries, gaugeKind, float64(len(s.Series)))
	for _, cause := range program.Failures {
		ch <- prometheus.MustNewConstMetric(execFailed, counterKind, float64(s.Failed[cause]), cause)
	}
}

// customCollector has what the program reports. It describes nothing, so that the registry takes
// any names.
type customCollector struct{ state func() program.State }

// Describe implements prometheus.Collector.
func (customCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. A series that cannot be exposed is left out: it would be
// an error of the whole scrape.
func (c customCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.state().Series {
		kind, names := gaugeKind, slices.Sorted(maps.Keys(s.Labels))
		if s.Counter {
			kind = counterKind
		}
		var values []string
		for _, name := range names {
			values = append(values, s.Labels[name])
		}
		desc := prometheus.NewDesc(customPrefix+s.Name, "Reported by the program of --window-exec.", names, nil)
		if m, err := prometheus.NewConstMetric(desc, kind, s.Value, values...); err == nil {
			ch <- m
		}
	}
}
