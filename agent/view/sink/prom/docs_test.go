package prom

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// docs/reference/metrics.md is what the registry says of itself.
func TestDocs(t *testing.T) {
	families, err := exporter(t).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var doc bytes.Buffer
	fmt.Fprintf(&doc, docHead, DefaultMaxMethods, DefaultMaxServices, halfLife, time.Duration(cpuTime.floor).Milliseconds(), goneWindows, DefaultMaxMethods, DefaultMaxServices, callFloor, infosPerService)
	for _, f := range families { // sorted by name
		if strings.HasPrefix(f.GetName(), "vmprof_") {
			fmt.Fprintf(&doc, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), labelNames(f), f.GetHelp())
		}
	}
	golden(t, "../../../../docs/reference/metrics.md", doc.Bytes())
}

func labelNames(f *dto.MetricFamily) string {
	var names []string
	for _, m := range f.Metric {
		for _, l := range m.Label {
			if name := "`" + l.GetName() + "`"; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}

const docHead = `# Metrics

` + "`vmprof-agent serve`" + ` serves ` + "`/metrics`" + ` in the text format of Prometheus, and in OpenMetrics or protobuf to scrapers that request them.

<!-- Written by go test ./agent/view/sink/prom -update; do not edit. -->

## Hot methods

` + "`vmprof_cpu_seconds_total`" + ` is the CPU time with a method as the leaf, in a bounded number of series:

- At most %d methods of a service (` + "`--metrics-max-methods`" + `) and %d services (` + "`--metrics-max-services`" + `) have series of their own. The rest is
  in ` + "`method=\"(other)\"`" + ` and ` + "`service=\"(other)\"`" + `, so that sums over any label are complete.
- Recent CPU time (half-life %v) decides which methods have series. A method loses its series only to a method that is twice as hot, and
  gets one from %d ms on. After that its time is counted in ` + "`(other)`" + `; earlier time stays in its series.
- The series of a service end when the service has been absent for %d windows. A service is a systemd unit, the application of a JVM, a
  container, or the name of a process. Process ids, threads and lines are not labels.

The hottest methods of the fleet:

` + "```" + `
topk(20, sum by (service, method) (rate(vmprof_cpu_seconds_total{method!="(other)"}[5m])))
` + "```" + `

With ` + "`serve -e calls`" + `, ` + "`vmprof_calls_total`" + ` counts calls by callee in the same way: at most %d methods of a service and %d services **of
each engine** have series of their own, from %d recent calls on. The label ` + "`engine`" + ` is the engine that recorded the calls, ` + "`basis`" + ` the way
it obtained the number ([calls](calls.md)). Do not compare or add up numbers of different engines. Numbers of one engine count each call
once, whatever their basis, and add up.

The most called methods of the fleet's JVMs:

` + "```" + `
topk(20, sum by (service, method) (rate(vmprof_calls_total{engine="hotspot", method!="(other)"}[5m])))
` + "```" + `

With ` + "`serve -e alloc`" + `, ` + "`-e exceptions`" + `, ` + "`-e lock`" + `, ` + "`-e safepoint`" + `, ` + "`-e offcpu`" + ` or ` + "`-e wall`" + ` there is one metric for each kind, by service:
` + "`vmprof_allocated_bytes_total`" + `, ` + "`vmprof_exceptions_total`" + `, ` + "`vmprof_lock_delay_seconds_total`" + ` by kind of lock, ` + "`vmprof_stopped_seconds_total`" + `, and
` + "`vmprof_offcpu_seconds_total`" + ` and ` + "`vmprof_wall_seconds_total`" + ` by [cause](../wall-clock.md#causes). Services get series in the same way. To
see the methods behind a number, fetch a profile. Only recorded kinds have series: hot methods and frames need ` + "`-e cpu`" + `, samples need
` + "`-e cpu`" + ` or an engine that samples at ticks.

The services that lose most time to contention, per second:

` + "```" + `
topk(20, sum by (service) (rate(vmprof_lock_delay_seconds_total{kind!="wait"}[5m])))
` + "```" + `

` + "`vmprof_service_info`" + ` says where the services of a host run: container, pod, namespace and main class or jar. It has series for services
that have some of CPU time, at most %d for each of the services that may have, and none of what has ended. Its service stays the same from
one release to the next; its container and pod do not. Where a service runs once on each host, join on it:

` + "```" + `
sum by (instance, service) (rate(vmprof_cpu_seconds_total[5m])) * on (instance, service) group_left (namespace, pod) vmprof_service_info
` + "```" + `

The share of samples that were lost:

` + "```" + `
1 - sum(rate(vmprof_samples_folded_total[5m])) / sum(rate(vmprof_samples_attempted_total[5m]))
` + "```" + `

## All metrics

The usual ` + "`process_*`" + ` and a few ` + "`go_*`" + ` metrics show what the agent itself uses.

| name | type | labels | meaning |
|---|---|---|---|
`
