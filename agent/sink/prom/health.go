package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A Source reports the state of the agent. Both methods may be called at any time, from any goroutine, and return
// values that the caller owns.
type Source interface {
	// Counts accounts for every sample since the agent started. What is only known once frames have been named,
	// Truncated, Stale and Unknown, is not read: it is summed up over the windows.
	Counts() profile.Counts
	// Stats is the agent's own health.
	Stats() profile.Stats
}

// snapshot is what all series of one scrape are read from, so that they fit together as well as they can.
type snapshot struct {
	profile.Counts
	profile.Stats
	windows windowTotals
}

// yield reports one series of a family: its value and the value of its label, if it has one.
type yield func(value float64, labels ...string)

// A family is one metric of the agent's own: a row of the table below.
type family struct {
	name, help string
	label      string // empty for none
	kind       prometheus.ValueType
	read       func(snapshot, yield)
}

const (
	counterKind = prometheus.CounterValue
	gaugeKind   = prometheus.GaugeValue
)

// families is everything but the hot methods and the two metrics with their own shape (see health.Collect). Each
// loss stands beside its success, so that a share can be computed without knowing the code.
func families() []family {
	return append(eventFamilies(), []family{
		// Samples, if CPUs tick: attempted = delivered + dropped; delivered = folded + discarded.
		ofTicks("vmprof_samples_attempted_total", "Samples that the kernel side began; the sum of delivered and dropped once the ring is drained.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Attempted)) }),
		ofTicks("vmprof_samples_delivered_total", "Samples that user space received; the sum of folded and discarded once they are processed.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Delivered)) }),
		ofTicks("vmprof_samples_dropped_total", "Samples lost between kernel and user space, by cause.", "cause", counterKind,
			func(s snapshot, y yield) { each(s.Dropped, y) }),
		ofTicks("vmprof_samples_folded_total", "Samples that reached a profile; the sum of complete and truncated, and of those with an unplaced context, once their windows are closed.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Folded)) }),
		ofTicks("vmprof_samples_discarded_total", "Samples received but left out of every profile, by reason.", "reason", counterKind,
			func(s snapshot, y yield) { each(s.Discarded, y) }),
		ofTicks("vmprof_ticks_skipped_total", "Ticks of the sampling event at which no sample was wanted, by reason: idle CPU, or a process that was not chosen. Each other tick is an attempted sample.", "reason", counterKind,
			func(s snapshot, y yield) { y(float64(s.Idle), "idle"); y(float64(s.Filtered), "filtered") }),

		// Closed windows: the samples in them are complete or truncated, the frames are named, stale or unknown.
		{"vmprof_windows_total", "Windows that were closed and are counted in the metrics of methods and services, of truncated samples and of frames.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.windows)) }},
		ofTicks("vmprof_samples_complete_total", "Samples of closed windows whose stack was walked, or is known, to its end.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.complete)) }),
		ofTicks("vmprof_samples_truncated_total", "Samples of closed windows whose stack walk ended early, by reason.", "reason", counterKind,
			func(s snapshot, y yield) { each(s.windows.truncated, y) }),
		ofTicks("vmprof_sample_contexts_total", "Samples of closed windows by how their context was found, unless every stack is walked: walked, or linked to what walks have shown.", "found", counterKind,
			func(s snapshot, y yield) { each(s.windows.contexts, y) }),
		ofTicks("vmprof_sample_contexts_uncertain_total", "Linked samples of closed windows whose context is not certain: ambiguous (several fit and share them), fitted (a near one) or unplaced (nothing is known beyond the caller).", "certainty", counterKind,
			func(s snapshot, y yield) { each(s.windows.uncertain, y) }),
		ofTicks("vmprof_kept_stacks_displaced_total", "Stacks of threads that the next partial walk cannot end at, because another thread's took their place.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.StacksDisplaced)) }),
		ofTime("vmprof_frames_named_total", "Frames of all samples of closed windows that have a name.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.named)) }),
		ofTime("vmprof_frames_stale_total", "Frames of all samples of closed windows that are [stale]: their code was unloaded before it could be named.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.stale)) }),
		ofTime("vmprof_frames_unknown_total", "Frames of all samples of closed windows that are [unknown]: nothing has a name at their address.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.unknown)) }),

		// Cost and health of the agent.
		{"vmprof_bpf_memory_bytes", "Kernel memory held by BPF maps, the ring included.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.MapBytes)) }},
		{"vmprof_ring_size_bytes", "Capacity of the ring between kernel and user space.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.RingSize)) }},
		ofTicks("vmprof_ring_received_bytes_total", "Bytes of samples received through the ring.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.RingBytes)) }),
		{"vmprof_reader_lag_seconds", "Age of the oldest record when the ring was last drained.", "", gaugeKind,
			func(s snapshot, y yield) { y(s.ReaderLag.Seconds()) }},
		{"vmprof_reader_pauses_total", "Times that the reader of the ring slept as a record was still being written.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.ReaderPauses)) }},
		{"vmprof_reader_flushes_cut_total", "Times that a window was closed while a record was still being written, which goes into the next one.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.FlushesCut)) }},

		// Calls, if they are sampled: attempted = delivered + dropped; delivered = folded + discarded.
		ofCalls("vmprof_call_samples_attempted_total", "Calls that engines sampled; the sum of delivered and dropped once the ring is drained.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Attempted)) }),
		ofCalls("vmprof_call_samples_delivered_total", "Sampled calls that user space received; the sum of folded and discarded.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Delivered)) }),
		ofCalls("vmprof_call_samples_dropped_total", "Sampled calls lost between kernel and user space, by cause.", "cause", counterKind,
			func(s *profile.CallStats, y yield) { each(s.Dropped, y) }),
		ofCalls("vmprof_call_samples_folded_total", "Sampled calls that reached a call graph.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Folded)) }),
		ofCalls("vmprof_call_samples_discarded_total", "Sampled calls received but left out of every call graph, by reason.", "reason", counterKind,
			func(s *profile.CallStats, y yield) { each(s.Discarded, y) }),
		ofCalls("vmprof_call_hits_total", "Executions of the engines' probes in guests, sampled or not.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Hits)) }),
		ofCalls("vmprof_call_hits_refused_total", "Executions of the engines' probes that nothing had been armed for.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Refused)) }),
		ofCalls("vmprof_call_bursts_total", "Bursts of sampled calls that were armed.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Bursts)) }),
		ofCalls("vmprof_call_bursts_skipped_total", "Ticks at which no burst could be armed: the last one had not ended, or there was no room.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Skipped)) }),
		ofCalls("vmprof_call_budget_ratio", "Share of the CPU time of guests that sampling their calls may take.", "", gaugeKind,
			func(s *profile.CallStats, y yield) { y(s.Budget) }),
		ofCalls("vmprof_call_guest_cpu_seconds_total", "CPU time of the guests whose calls are sampled.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(s.GuestTime.Seconds()) }),
		ofCalls("vmprof_call_cost_seconds_total", "CPU time that sampling calls took from guests, by the measured cost of a hit.", "engine", counterKind,
			func(s *profile.CallStats, y yield) {
				for engine, cost := range s.Costs {
					y(cost.Seconds(), engine)
				}
			}),
		ofCalls("vmprof_call_credibility_error", "Median error of the VMs' own call counters against calls observed with breakpoints, as the logarithm of a factor, for the worst VM of a service. Above 0.3 the counters are not used.", "service", gaugeKind,
			func(s *profile.CallStats, y yield) {
				for service, c := range s.Credibility {
					y(c.Error, service)
				}
			}),

		// Targets.
		{"vmprof_processes", "Processes known and alive, by managed runtime; native is none.", "runtime", gaugeKind,
			func(s snapshot, y yield) {
				for runtime, n := range s.Processes {
					y(float64(n), runtimeLabel(runtime))
				}
			}},
		{"vmprof_processes_quarantined", "Processes left alone for a while because reading them hung or failed.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.Quarantined)) }},
		{"vmprof_processes_refused_total", "Chosen processes and children of theirs that are not sampled because too many were chosen.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.ProcessesRefused)) }},
		{"vmprof_threads_refused_total", "Times that a Java thread found no room among those that are known by their ids, as libjvm has no symbol for them. Its samples in native code may lack their Java callers.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.ThreadsRefused)) }},
		{"vmprof_target_reads_stuck", "Reads of targets that did not return in time and still hang. Each holds a thread; those of one user in one cgroup are bounded.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.StuckReads)) }},
		{"vmprof_target_reads_total", "Reads of memory or files of targets that succeeded.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Reads)) }},
		{"vmprof_target_read_failures_total", "Reads of memory or files of targets that failed, by cause.", "cause", counterKind,
			func(s snapshot, y yield) { each(s.ReadFailures, y) }},
		{"vmprof_process_failures_total", "Panics of the agent while it handled a process, by what it did. That process is left alone for a while; others are not affected. Each is a fault of the agent: its log has the stack.", "stage", counterKind,
			func(s snapshot, y yield) { each(s.Failures, y) }},
		{"vmprof_frame_lookups_total", "Frames whose name was looked up because it was not known from earlier samples.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Frames)) }},
		{"vmprof_methods_redefined_total", "Methods of guest VMs that were sampled as other methods than before at the same address, because an agent or a debugger redefined their class.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Redefined)) }},
		{"vmprof_code_loads_total", "Compilations that guest VMs announced.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.CodeLoads)) }},
		{"vmprof_events_dropped_total", "Announcements of compilations and of processes that found no room in the kernel; names may be missing.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.EventsDropped)) }},
		{"vmprof_method_map_entries", "Entries in the method maps of all guest VMs.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.MethodMaps)) }},
		{"vmprof_method_map_entries_max", "Entries that the method maps of all guest VMs may hold.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.MethodMapsMax)) }},
	}...)
}

// ofTicks is a family without series unless CPUs tick.
func ofTicks(name, help, label string, kind prometheus.ValueType, read func(snapshot, yield)) family {
	return family{name, help, label, kind, func(s snapshot, y yield) {
		if s.Ticks {
			read(s, y)
		}
	}}
}

// ofTime is a family that has series only if CPU time is sampled.
func ofTime(name, help, label string, kind prometheus.ValueType, read func(snapshot, yield)) family {
	return family{name, help, label, kind, func(s snapshot, y yield) {
		if s.Time {
			read(s, y)
		}
	}}
}

// ofCalls is a family without series unless calls are sampled.
func ofCalls(name, help, label string, kind prometheus.ValueType, read func(*profile.CallStats, yield)) family {
	return family{name, help, label, kind, func(s snapshot, y yield) {
		if s.Calls != nil {
			read(s.Calls, y)
		}
	}}
}

func each(counts map[string]uint64, y yield) {
	for key, n := range counts {
		y(float64(n), label(key))
	}
}

func total(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// less is a-b, but never below zero: a counter must not go back, whatever it is computed from.
func less(a, b uint64) uint64 { return a - min(a, b) }
