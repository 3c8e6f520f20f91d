package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
)

// A Source reports the state of the agent. Both methods may be called at any time, from any
// goroutine, and return values that the caller owns.
type Source interface {
	// Counts accounts for every sample since the agent started. What is only known once frames have
	// been named, Truncated, Stale and Unknown, is not read: it is summed up over the windows.
	Counts() (profile.Counts, error)
	// Stats is the agent's own health.
	Stats() profile.Stats
}

// snapshot is what all series of one scrape are read from, so that they fit together as well as
// they can.
type snapshot struct {
	profile.Counts
	profile.Stats
	windows windowTotals
	history *history.Stats // nil without a history
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

// families is everything but the hot methods and the two metrics with their own shape (see
// health.Collect). Each loss comes next to its success, so that readers can compute a share without
// knowing the code.
func families() []family {
	return append(append(eventFamilies(), historyFamilies()...), []family{
		// Samples, if CPUs tick: attempted = delivered + dropped; delivered = folded + discarded.
		ofTicks("vmprof_samples_attempted_total",
			"Samples that the kernel side began; the sum of delivered and dropped once the ring is drained.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.Attempted)) }),
		ofTicks("vmprof_samples_delivered_total",
			"Samples that user space received; the sum of folded and discarded once they are processed.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.Delivered)) }),
		ofTicks("vmprof_samples_dropped_total", "Samples lost between kernel and user space, by cause.", "cause",
			counterKind,
			func(s snapshot, y yield) { each(s.Dropped, y) }),
		ofTicks("vmprof_samples_folded_total",
			"Samples in profiles; the sum of complete, truncated and unplaced samples once their windows are closed.",
			"", counterKind,
			func(s snapshot, y yield) { y(float64(s.Folded)) }),
		ofTicks("vmprof_samples_discarded_total", "Samples that were received but are in no profile, by reason.",
			"reason", counterKind,
			func(s snapshot, y yield) { each(s.Discarded, y) }),
		ofTicks("vmprof_ticks_skipped_total",
			"Ticks of the sampling event without a sample, by reason: idle CPU (with --clock=tick), or a process "+
				"that is not selected. Every other tick is an attempted sample.", "reason", counterKind,
			func(s snapshot, y yield) { y(float64(s.Idle), "idle"); y(float64(s.Filtered), "filtered") }),

		// Closed windows: the samples in them are complete or truncated, the frames are named,
		// stale or unknown.
		{"vmprof_windows_total", "Closed windows that the metrics of methods, services, truncated samples and frames " +
			"include.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.windows)) }},
		ofTicks("vmprof_samples_complete_total", "Samples of closed windows whose stack is complete to its root.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.complete)) }),
		ofTicks("vmprof_samples_truncated_total", "Samples of closed windows whose stack walk ended early, by reason.",
			"reason", counterKind,
			func(s snapshot, y yield) { each(s.windows.truncated, y) }),
		ofTicks("vmprof_sample_contexts_total",
			"Samples of closed windows by how their context was found: walked, or linked to contexts learned from "+
				"walks. Absent if every stack is walked.", "found", counterKind,
			func(s snapshot, y yield) { each(s.windows.contexts, y) }),
		ofTicks("vmprof_sample_contexts_uncertain_total",
			"Linked samples of closed windows with an uncertain context: ambiguous (several fit and share the "+
				"sample), fitted (the nearest one) or unplaced (unknown beyond the caller).", "certainty", counterKind,
			func(s snapshot, y yield) { each(s.windows.uncertain, y) }),
		ofTicks("vmprof_kept_stacks_displaced_total",
			"Kept stacks of threads that another thread's stack replaced; the next partial walk of such a thread is "+
				"complete.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.StacksDisplaced)) }),
		ofTime("vmprof_frames_named_total", "Frames with a name, in all samples of closed windows.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.named)) }),
		ofTime("vmprof_frames_stale_total",
			"Frames that are [stale], in all samples of closed windows: their code was unloaded before it could be "+
				"named.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.stale)) }),
		ofTime("vmprof_frames_unknown_total",
			"Frames that are [unknown], in all samples of closed windows: no symbol covers their address.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.windows.unknown)) }),

		// Cost and health of the agent.
		{"vmprof_bpf_memory_bytes", "Kernel memory of BPF maps, including the ring.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.MapBytes)) }},
		{"vmprof_ring_size_bytes", "Capacity of the ring between kernel and user space.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.RingSize)) }},
		ofTicks("vmprof_ring_received_bytes_total", "Bytes of samples received through the ring.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.RingBytes)) }),
		{"vmprof_reader_lag_seconds", "Age of the oldest record when the ring was last drained.", "", gaugeKind,
			func(s snapshot, y yield) { y(s.ReaderLag.Seconds()) }},
		{"vmprof_reader_pauses_total", "Times that the reader of the ring slept because a record was still being " +
			"written.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.ReaderPauses)) }},
		{"vmprof_reader_flushes_cut_total",
			"Windows closed while a record was still being written; that record goes into the next window.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.FlushesCut)) }},

		// Calls, if they are sampled: attempted = delivered + dropped; delivered = folded +
		// discarded.
		ofCalls("vmprof_call_samples_attempted_total",
			"Calls that engines sampled; the sum of delivered and dropped once the ring is drained.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Attempted)) }),
		ofCalls("vmprof_call_samples_delivered_total",
			"Sampled calls that user space received; the sum of folded and discarded.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Delivered)) }),
		ofCalls("vmprof_call_samples_dropped_total", "Sampled calls lost between kernel and user space, by cause.",
			"cause", counterKind,
			func(s *profile.CallStats, y yield) { each(s.Dropped, y) }),
		ofCalls("vmprof_call_samples_folded_total", "Sampled calls in call graphs.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Folded)) }),
		ofCalls("vmprof_call_samples_discarded_total",
			"Sampled calls that were received but are in no call graph, by reason.", "reason", counterKind,
			func(s *profile.CallStats, y yield) { each(s.Discarded, y) }),
		ofCalls("vmprof_call_hits_total", "Executions of the engines' probes, sampled or not.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Hits)) }),
		ofCalls("vmprof_call_hits_refused_total", "Executions of the engines' probes without an armed burst.", "",
			counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Refused)) }),
		ofCalls("vmprof_call_bursts_total", "Armed bursts of sampled calls.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Bursts)) }),
		ofCalls("vmprof_call_bursts_skipped_total",
			"Ticks that armed no burst, because the last one had not ended or there was no room.", "", counterKind,
			func(s *profile.CallStats, y yield) { y(float64(s.Skipped)) }),
		ofCalls("vmprof_call_watches_total",
			"Watches in which breakpoints observe calls, by outcome: complete, full (limit of hits reached), void "+
				"(the code was replaced), refused (no thread could be watched), interrupted or failed.", "outcome",
			counterKind,
			func(s *profile.CallStats, y yield) { each(s.Watches, y) }),
		ofCalls("vmprof_call_watch_threads_busy_total",
			"Threads left out of watches of breakpoints, because somebody else uses their debug registers; once for "+
				"each watch.", "", counterKind,
			func(s *profile.CallStats, y yield) {
				if s.Watches != nil {
					y(float64(s.BusyThreads))
				}
			}),
		ofCalls("vmprof_call_budget_ratio",
			"Largest share of the sampled processes' CPU time that sampling calls may use.", "", gaugeKind,
			func(s *profile.CallStats, y yield) { y(s.Budget) }),
		ofCalls("vmprof_call_guest_cpu_seconds_total", "CPU time of the processes whose calls are sampled.", "",
			counterKind,
			func(s *profile.CallStats, y yield) { y(s.GuestTime.Seconds()) }),
		ofCalls("vmprof_call_cost_seconds_total",
			"CPU time of the sampled processes that sampling calls used, by the measured cost of a hit.", "engine",
			counterKind,
			func(s *profile.CallStats, y yield) {
				for engine, cost := range s.Costs {
					y(cost.Seconds(), engine)
				}
			}),
		ofCalls("vmprof_call_credibility_error",
			"Median error of the VMs' own call counters relative to calls observed with breakpoints, as the "+
				"logarithm of a factor, for the worst VM of a service. Above 0.3 the counters are not used.", "service",
			gaugeKind,
			func(s *profile.CallStats, y yield) {
				for service, c := range s.Credibility {
					y(c.Error, service)
				}
			}),

		// Targets.
		{"vmprof_processes", "Known live processes, by managed runtime; native means none.", "runtime", gaugeKind,
			func(s snapshot, y yield) {
				for runtime, n := range s.Processes {
					y(float64(n), runtimeLabel(runtime))
				}
			}},
		{"vmprof_processes_quarantined", "Processes that are not read for a while, because reading them hung or " +
			"failed.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.Quarantined)) }},
		{"vmprof_processes_refused_total",
			"Selected processes and their children that are not sampled, because too many were selected.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.ProcessesRefused)) }},
		{"vmprof_threads_refused_total", "Java threads without room in the table of threads found by their ids, in a " +
			"libjvm without symbols. Their samples in native code may lack the Java callers.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.ThreadsRefused)) }},
		{"vmprof_thread_ends_dropped_total",
			"Ends of Java threads that found no room in the ring, or of which there were too many as their VM ended. " +
				"What they allocated in their last window is in no total.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.ThreadEndsLost)) }},
		{"vmprof_walks_cut_total", "Stacks whose walk took too long and was ended: they are [… cut: time]. Those of " +
			"samples are in vmprof_samples_truncated_total, too.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.WalksCut)) }},
		{"vmprof_unwind_frames_total", "Native frames without frame pointers whose callers were found in unwind " +
			"tables, which the agent makes from .eh_frame.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.UnwindFrames)) }},
		{"vmprof_unwind_lookups_total", "Frames of vmprof_unwind_frames_total whose rule was not known from before: it was " +
			"looked up in a table.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.UnwindLookups)) }},
		{"vmprof_unwind_tables", "Unwind tables in the kernel, one for each distinct file.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.UnwindTables)) }},
		{"vmprof_unwind_table_bytes", "Kernel memory of unwind tables. vmprof_bpf_map_bytes includes it.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.UnwindBytes)) }},
		{"vmprof_unwind_losses_total", "Native stacks that are cut for want of an unwind table or a rule in one, and " +
			"files, processes and requests that got no table, by cause.", "cause", counterKind,
			func(s snapshot, y yield) { each(s.UnwindLosses, y) }},
		{"vmprof_target_reads_stuck", "Reads of targets that did not return in time and still hang. Each holds a " +
			"thread; their number is bounded for each user and cgroup.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.StuckReads)) }},
		{"vmprof_target_reads_total", "Successful reads of the memory or files of targets.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Reads)) }},
		{"vmprof_target_read_failures_total", "Failed reads of the memory or files of targets, by cause.", "cause",
			counterKind,
			func(s snapshot, y yield) { each(s.ReadFailures, y) }},
		{"vmprof_process_failures_total", "Panics of the agent, by stage: mostly while it handled a process, which " +
			"it retries later; others are not affected. Each is a bug of the agent: its log contains the stack.",
			"stage", counterKind,
			func(s snapshot, y yield) { each(s.Failures, y) }},
		{"vmprof_frame_lookups_total", "Frames whose name was not known from earlier samples and was looked up.", "",
			counterKind,
			func(s snapshot, y yield) { y(float64(s.Frames)) }},
		{"vmprof_methods_redefined_total",
			"Methods whose address was sampled with another method than before, because an agent or a debugger " +
				"redefined the class.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.Redefined)) }},
		{"vmprof_code_loads_total", "Compilations announced by VMs.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.CodeLoads)) }},
		{"vmprof_events_dropped_total", "Announcements of compilations and processes that were lost for lack of room " +
			"in the kernel; names may be missing.", "", counterKind,
			func(s snapshot, y yield) { y(float64(s.EventsDropped)) }},
		{"vmprof_method_map_entries", "Entries in the method maps of all VMs.", "", gaugeKind,
			func(s snapshot, y yield) { y(float64(s.MethodMaps)) }},
		{"vmprof_method_map_entries_max", "Maximum number of entries in the method maps of all VMs.", "", gaugeKind,
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
