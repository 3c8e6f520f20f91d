package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"
)

var (
	ruleSums = map[string]*prometheus.Desc{
		"seconds": prometheus.NewDesc("vmprof_rule_seconds_total",
			"Sum over all windows by a rule (--rule) of times: CPU time, waits, pauses.", []string{"rule", "group"},
			nil),
		"bytes": prometheus.NewDesc("vmprof_rule_bytes_total", "Sum over all windows by a rule (--rule) of bytes.",
			[]string{"rule", "group"}, nil),
		"count": prometheus.NewDesc("vmprof_rule_count_total",
			"Sum over all windows by a rule (--rule) of counts: samples, calls, objects.", []string{"rule", "group"},
			nil),
	}
	ruleShares = prometheus.NewDesc("vmprof_rule_share_ratio",
		"Share of the last window by a rule with share (--rule), from 0 to 1. Absent if the rule failed.",
		[]string{"rule", "group"}, nil)
	ruleFailed = prometheus.NewDesc("vmprof_rule_failures_total",
		"Windows without a value of a rule, by cause: busy (the window before was not done), timeout (all rules took "+
			"more than a second), cost (too many steps for one sample) or error (logged).",
		[]string{"rule", "cause"}, nil)
)

// ruleCollector has the metrics of rules.
type ruleCollector struct{ states func() []rule.State }

// Describe implements prometheus.Collector.
func (c ruleCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range ruleSums {
		ch <- d
	}
	ch <- ruleShares
	ch <- ruleFailed
}

// Collect implements prometheus.Collector. Groups whose labels are equal once they are cleaned are
// added up.
func (c ruleCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.states() {
		for group, value := range byLabel(s.Sums) {
			ch <- prometheus.MustNewConstMetric(ruleSums[s.Unit], counterKind, value, s.Name, group)
		}
		for group, value := range byLabel(s.Shares) {
			ch <- prometheus.MustNewConstMetric(ruleShares, gaugeKind, value, s.Name, group)
		}
		for _, cause := range []string{rule.FailedBusy, rule.FailedTimeout, rule.FailedCost, rule.FailedError} {
			ch <- prometheus.MustNewConstMetric(ruleFailed, counterKind, float64(s.Failures[cause]), s.Name, cause)
		}
	}
}

// byLabel are values by label; "" stays, which to Prometheus is none.
func byLabel(values map[string]float64) map[string]float64 {
	sums := make(map[string]float64, len(values))
	for group, value := range values {
		if group != "" {
			group = label(group)
		}
		sums[group] += value
	}
	return sums
}
