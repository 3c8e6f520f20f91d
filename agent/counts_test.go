package agent

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// What found no room is in the profile's comments, and nothing else is.
func TestRoomNotes(t *testing.T) {
	a := &Agent{}
	var none bpf.Counts
	if notes := a.roomNotes(&none, &none); len(notes) != 0 {
		t.Errorf("notes of nothing: %q", notes)
	}
	before := bpf.Counts{
		bpf.EventsDroppedRingFull: 1, bpf.EventsDroppedBusy: 1, bpf.ObservationsDroppedTableFull: 1,
		bpf.HitsUnattached: 1, bpf.ProcessesRefused: 1, bpf.ThreadsRefused: 1,
	}
	after := bpf.Counts{
		bpf.EventsDroppedRingFull: 3, bpf.EventsDroppedBusy: 4, bpf.ObservationsDroppedTableFull: 8,
		bpf.HitsUnattached: 10, bpf.ProcessesRefused: 12, bpf.ThreadsRefused: 4, bpf.ThreadEndsDropped: 2,
		bpf.UnwindYoung: 6,
	}
	a.refused.Store(100)
	got := a.roomNotes(&before, &after)
	want := []string{"112 processes are not sampled: at most 8192", "5 records of compilations",
		"7 events are not recorded: more than 16384 threads", "3 times the table of Java threads by id was full (limit 16384;",
		"2 ends of Java threads were lost", "6 native stacks are cut where code has no frame pointers: their processes were younger than 50ms",
		"9 allocations and waits"}
	if len(got) != len(want) {
		t.Fatalf("%d notes, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("note %q, want %q…", got[i], want[i])
		}
	}
}
