package prom

import (
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"

	"github.com/prometheus/client_golang/prometheus"
)

// eventFloor is the recent amount that a service needs for series of its own: anything at all, as
// services are few.
const eventFloor = 1

// An eventTotal is what services count of one kind of events.
type eventTotal struct {
	of profile.EventKind
	*kind
}

// eventTotals are one number each, or one for each kind of lock.
func eventTotals() []eventTotal {
	return []eventTotal{
		{profile.Allocations, &kind{
			total: prometheus.NewDesc("vmprof_allocated_bytes_total",
				"Bytes allocated by the processes of the busiest services, estimated from sampled allocations; all "+
					"other services are in service=\"(other)\".",
				[]string{"service"}, nil),
			measure: func(p *profile.Profile) usage { return eventUsage(p, profile.Allocations) },
			unit:    1,
			floor:   eventFloor,
			labels:  func(service string, m method) []string { return []string{service} },
		}},
		{profile.Exceptions, &kind{
			total: prometheus.NewDesc("vmprof_exceptions_total",
				"Exceptions with a stack trace that the processes of the busiest services created; all other services "+
					"are in service=\"(other)\".",
				[]string{"service"}, nil),
			measure: func(p *profile.Profile) usage { return eventUsage(p, profile.Exceptions) },
			unit:    1,
			floor:   eventFloor,
			labels:  func(service string, m method) []string { return []string{service} },
		}},
		{profile.Locks, &kind{
			total: prometheus.NewDesc("vmprof_lock_delay_seconds_total",
				"Time that threads of the busiest services waited for locks, by kind: spin, block, park or enter; "+
					"and wait, which is a wait for work, not contention. All other services are in "+
					"service=\"(other)\".",
				[]string{"service", "kind"}, nil),
			measure: func(p *profile.Profile) usage { return eventUsage(p, profile.Locks) },
			unit:    float64(time.Second),
			floor:   eventFloor,
			labels:  func(service string, m method) []string { return []string{service, m.basis} },
		}},
		{profile.OffCPU, &kind{
			total: prometheus.NewDesc("vmprof_offcpu_seconds_total",
				"Time that threads of the busiest services used no CPU, all threads together, by cause: runnable is "+
					"time on run queues, throttled is that of a CPU quota; all other services are in "+
					"service=\"(other)\".",
				[]string{"service", "cause"}, nil),
			measure: func(p *profile.Profile) usage { return eventUsage(p, profile.OffCPU) },
			unit:    float64(time.Second),
			floor:   eventFloor,
			labels:  func(service string, m method) []string { return []string{service, m.basis} },
		}},
		{profile.Wall, &kind{
			total: prometheus.NewDesc("vmprof_wall_seconds_total",
				"Time of the threads of the busiest services, all threads together, by cause: running is time on a "+
					"CPU, the others are time off it; all other services are in service=\"(other)\".",
				[]string{"service", "cause"}, nil),
			measure: func(p *profile.Profile) usage { return eventUsage(p, profile.Wall) },
			unit:    float64(time.Second),
			floor:   eventFloor,
			labels:  func(service string, m method) []string { return []string{service, m.basis} },
		}},
		{profile.Pauses, &kind{
			total: prometheus.NewDesc("vmprof_stopped_seconds_total",
				"Time in safepoint pauses of the VMs of the busiest services; all other services are in "+
					"service=\"(other)\".",
				[]string{"service"}, nil),
			measure: func(p *profile.Profile) usage { return eventUsage(p, profile.Pauses) },
			unit:    float64(time.Second),
			floor:   eventFloor,
			labels:  func(service string, m method) []string { return []string{service} },
		}},
	}
}

// whats are the values of EventLabels.What that a series is made for.
var whats = map[profile.EventKind][]string{
	profile.Locks:  {"spin", "block", "park", "wait", "enter"},
	profile.OffCPU: cause.All,
	profile.Wall:   append(slices.Clip(cause.All), cause.Running),
}

// eventUsage returns the main value of the events of a kind, by service. Locks, off-CPU and wall
// time are also split by EventLabels.What, which takes the place of the basis. There are no
// methods. Exact counts of allocations are left out, as estimates cover the same objects.
func eventUsage(p *profile.Profile, of profile.EventKind) usage {
	used := make(usage)
	for _, proc := range p.Processes {
		for _, e := range proc.Events {
			if e.Kind != of {
				continue
			}
			sums := make(map[method]float64)
			for _, row := range e.Rows {
				if of == profile.Allocations && row.What == profile.ExactAllocations {
					continue
				}
				m := method{name: other}
				if kinds := whats[of]; kinds != nil {
					if m.basis = row.What; !slices.Contains(kinds, m.basis) {
						m.basis = other
					}
				}
				sums[m] += row.Values[of.Main()]
			}
			for m, sum := range sums {
				if n := whole(sum); n > 0 {
					used.forService(label(proc.Service))[m] += n
				}
			}
		}
	}
	return used
}

// whole rounds an estimate; what is no number of anything is nothing.
func whole(estimate float64) uint64 {
	const most = 1 << 62 // more would let counters wrap
	if !(estimate > 0 && estimate < most) {
		return 0
	}
	return uint64(math.Round(estimate))
}

// ofEvents is a family without series unless events are recorded.
func ofEvents(name, help, label string, read func(*profile.EventCounts, yield)) family {
	return family{name, help, label, counterKind, func(s snapshot, y yield) {
		if s.Events != nil {
			read(&s.Events.EventCounts, y)
		}
	}}
}

// ofEventStats is a family of times by kind of event.
func ofEventStats(name, help string, read func(*profile.EventStats) map[string]time.Duration) family {
	return family{name, help, "kind", counterKind, func(s snapshot, y yield) {
		if s.Events == nil {
			return
		}
		for kind, spent := range read(s.Events) {
			y(spent.Seconds(), kind)
		}
	}}
}

// eventFamilies account for all events since the agent started, all kinds together.
func eventFamilies() []family {
	return []family{
		// Events, if they are recorded: attempted = delivered + dropped; delivered = folded +
		// discarded.
		ofEvents("vmprof_event_samples_attempted_total",
			"Events, such as allocations, that the kernel side began to record; the sum of delivered and dropped "+
				"once the ring is drained.", "",
			func(c *profile.EventCounts, y yield) { y(float64(c.Attempted)) }),
		ofEvents("vmprof_event_samples_delivered_total",
			"Events that user space received; the sum of folded and discarded.", "",
			func(c *profile.EventCounts, y yield) { y(float64(c.Delivered)) }),
		ofEvents("vmprof_event_samples_dropped_total", "Events lost between kernel and user space, by cause.", "cause",
			func(c *profile.EventCounts, y yield) { each(c.Dropped, y) }),
		ofEvents("vmprof_event_samples_folded_total", "Events in profiles.", "",
			func(c *profile.EventCounts, y yield) { y(float64(c.Folded)) }),
		ofEvents("vmprof_event_samples_discarded_total", "Events that were received but are in no profile, by reason.",
			"reason",
			func(c *profile.EventCounts, y yield) { each(c.Discarded, y) }),
		ofEventStats("vmprof_event_wanted_seconds_total",
			"Time during which events were requested, by kind, summed over the libraries with probes for them.",
			func(s *profile.EventStats) map[string]time.Duration { return s.Wanted }),
		ofEventStats("vmprof_event_observed_seconds_total",
			"Time during which the probes of events were attached, by kind. In the rest of "+
				"vmprof_event_wanted_seconds_total they would have exceeded the budget; values are scaled to the "+
				"whole "+
				"time.",
			func(s *profile.EventStats) map[string]time.Duration { return s.Observed }),
		ofEvents("vmprof_event_hits_total", "Executions of the events' probes, recorded or not.", "",
			func(c *profile.EventCounts, y yield) { y(float64(c.Hits)) }),
		ofEvents("vmprof_event_unattached_hits_total",
			"Allocations and waits that were not recorded, because the agent had not attached to the JVM yet.", "",
			func(c *profile.EventCounts, y yield) { y(float64(c.Unattached)) }),
		{"vmprof_offcpu_waits_total", "Times that threads came back to a CPU, by outcome: drawn for a record, " +
			"thinned (short waits that were not drawn), or refused (a thread was not followed, as there were too " +
			"many).", "outcome", counterKind, func(s snapshot, y yield) {
			if s.Events == nil || !slices.Contains(s.Events.Kinds, profile.OffCPU) {
				return
			}
			c := &s.Events.EventCounts
			y(float64(c.Waits-min(c.WaitsThinned, c.Waits)), "drawn")
			y(float64(c.WaitsThinned), "thinned")
			y(float64(c.WaitsRefused), "refused")
		}},
		{"vmprof_offcpu_wakers_total", "Records of who ended a wait (--wakers), by outcome: delivered to user space, " +
			"or dropped. They count as events, too.", "outcome", counterKind, func(s snapshot, y yield) {
			if s.Events == nil || !slices.Contains(s.Events.Kinds, profile.OffCPU) &&
				!slices.Contains(s.Events.Kinds, profile.Wall) {
				return
			}
			c := &s.Events.EventCounts
			y(float64(c.Wakers-min(c.WakersLost, c.Wakers)), "delivered")
			y(float64(c.WakersLost), "dropped")
		}},
		ofEvents("vmprof_event_cost_seconds_total",
			"CPU time of the profiled processes that recording events used, by the measured cost of a hit.", "",
			func(c *profile.EventCounts, y yield) { y(c.Cost.Seconds()) }),
	}
}
