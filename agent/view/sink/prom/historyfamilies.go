package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
)

// historyFamilies are the metrics of serve --history-dir.
func historyFamilies() []family {
	return []family{
		ofHistory("vmprof_history_windows_total", "Windows written to the history.", "", counterKind,
			func(s *history.Stats, y yield) { y(float64(s.Windows)) }),
		ofHistory("vmprof_history_windows_lost_total",
			"Windows missing from the history, by cause: disk_full, busy (the disk was too slow), too_large, or "+
				"failed (any other error, which is logged).", "cause", counterKind,
			func(s *history.Stats, y yield) { each(s.Lost, y) }),
		ofHistory("vmprof_history_written_bytes_total",
			"Bytes written to the history, also when old windows are merged.", "", counterKind,
			func(s *history.Stats, y yield) { y(float64(s.Bytes)) }),
		ofHistory("vmprof_history_cut_bytes_total",
			"Bytes of incomplete records that were cut off the end of the history.", "", counterKind,
			func(s *history.Stats, y yield) { y(float64(s.Cut)) }),
		ofHistory("vmprof_history_removed_bytes_total",
			"Bytes of the history's oldest windows that were removed, by reason: age (--history) or size "+
				"(--history-size).", "reason", counterKind,
			func(s *history.Stats, y yield) { each(s.Removed, y) }),
		ofHistory("vmprof_history_failures_total",
			"Failures of the history that lost no window, by step: open (a segment that cannot be read stays as it "+
				"is), merge (tried again later), or remove.", "step", counterKind,
			func(s *history.Stats, y yield) { each(s.Failed, y) }),
		ofHistory("vmprof_history_size_bytes", "Size of the history.", "", gaugeKind,
			func(s *history.Stats, y yield) { y(float64(s.Size)) }),
		ofHistory("vmprof_history_unread_bytes",
			"Bytes of the history that cannot be read, by reason: damaged, other_version (another version of the "+
				"agent wrote them), or failed (the file cannot be opened or read). They stay until they are too old.",
			"reason", gaugeKind,
			func(s *history.Stats, y yield) { each(s.Unread, y) }),
		ofHistory("vmprof_history_size_bytes_max", "Maximum size of the history (--history-size).", "", gaugeKind,
			func(s *history.Stats, y yield) { y(float64(s.MaxSize)) }),
		ofHistory("vmprof_history_oldest_timestamp_seconds",
			"Start of the oldest window in the history, in seconds since 1970; 0 if it is empty.", "", gaugeKind,
			func(s *history.Stats, y yield) {
				if s.Oldest.IsZero() {
					y(0)
				} else {
					y(float64(s.Oldest.UnixMilli()) / 1000)
				}
			}),
	}
}

// ofHistory is a family without series unless there is a history.
func ofHistory(name, help, label string, kind prometheus.ValueType, read func(*history.Stats, yield)) family {
	return family{name, help, label, kind, func(s snapshot, y yield) {
		if s.history != nil {
			read(s.history, y)
		}
	}}
}
