package prom

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

var passwordChecks = prometheus.NewDesc("vmprof_http_password_checks_total",
	"Requests with a password (basic_auth_users of --web.config.file), by result: right, wrong, remembered (right, "+
		"and used within the last 10 minutes), shared (with another request, for which it is being checked), or "+
		"refused (status 429, as the address sent too many wrong ones or too many wait).",
	[]string{"result"}, nil)

// passwordCollector has what became of passwords in requests, by result.
type passwordCollector struct{ results func() map[string]uint64 }

// Describe implements prometheus.Collector.
func (c passwordCollector) Describe(ch chan<- *prometheus.Desc) { ch <- passwordChecks }

// Collect implements prometheus.Collector.
func (c passwordCollector) Collect(ch chan<- prometheus.Metric) {
	results := c.results()
	for _, result := range slices.Sorted(maps.Keys(results)) {
		ch <- prometheus.MustNewConstMetric(passwordChecks, counterKind, float64(results[result]), result)
	}
}
