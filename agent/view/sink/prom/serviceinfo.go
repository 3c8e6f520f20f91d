package prom

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

var (
	serviceInfoDesc = prometheus.NewDesc("vmprof_service_info",
		"Always 1; its labels say where a running service runs: container, pod and namespace, as far as cgroup, host "+
			"name and environment say, and the main class or jar of a JVM.",
		[]string{"service", "container_id", "pod_uid", "pod", "namespace", "main"}, nil)
	serviceInfoOmitted = prometheus.NewDesc("vmprof_service_info_omitted",
		"Places of running services that have no series of vmprof_service_info, because their service has none of "+
			"its own or there are too many.", nil, nil)
)

// infosPerService is how many series of vmprof_service_info there are for each service that may
// have series, on average: a host runs a service in few containers.
const infosPerService = 4

// serviceInfo is the collector of vmprof_service_info, to join other metrics with on service. Its
// series are those of processes that run now, and end with them.
type serviceInfo struct {
	source Source
	ranked *rankedUsage // usage whose services have series of their own; nil: all of them
	most   int
}

// Describe implements prometheus.Collector.
func (c *serviceInfo) Describe(ch chan<- *prometheus.Desc) {
	ch <- serviceInfoDesc
	ch <- serviceInfoOmitted
}

// Collect implements prometheus.Collector.
func (c *serviceInfo) Collect(ch chan<- prometheus.Metric) {
	rows := make(map[profile.Workload]bool) // cleaned, which may make several one
	omitted := 0
	for w := range c.source.Stats().Workloads {
		w.Service = label(w.Service)
		for _, field := range []*string{&w.ContainerID, &w.PodUID, &w.Pod, &w.Namespace, &w.Main} {
			if *field != "" {
				*field = label(*field)
			}
		}
		if c.ranked != nil && !c.ranked.has(w.Service) {
			omitted++
			continue
		}
		rows[w] = true
	}
	list := make([]profile.Workload, 0, len(rows))
	for w := range rows {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b profile.Workload) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.ContainerID, b.ContainerID),
			cmp.Compare(a.PodUID, b.PodUID),
			cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Main, b.Main))
	})
	if len(list) > c.most {
		omitted += len(list) - c.most
		list = list[:c.most]
	}
	for _, w := range list {
		ch <- prometheus.MustNewConstMetric(serviceInfoDesc, gaugeKind, 1, w.Service, w.ContainerID, w.PodUID, w.Pod,
			w.Namespace, w.Main)
	}
	ch <- prometheus.MustNewConstMetric(serviceInfoOmitted, gaugeKind, float64(omitted))
}
