package tests

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// TestRecordVirtualLocks: waits of virtual threads for locks are what they have measured
// themselves, with their stacks, whether they keep their carriers, as JDK 21 has it for monitors,
// or not. What off-CPU time does not have of them is said.
func TestRecordVirtualLocks(t *testing.T) {
	needs.Root(t, "sampling")
	installed := needs.JDKs(t)
	for _, jdk := range append(needs.Fetched(t, "21"), installed[len(installed)-1]) {
		t.Run(strconv.Itoa(jdk.Version), func(t *testing.T) { recordVirtualLocks(t, jdk) })
	}
}

func recordVirtualLocks(t *testing.T, jdk jvm.JDK) {
	const least = 21
	if jdk.Version < least {
		needs.Missing(t, "no virtual threads: install JDK 21 or later")
	}
	guest := startEvents(t, jdk, events.Carried)
	const amount = 1500 // ms
	p, truth := recordEvents(t, guest, "lock", 1, amount, "--budget=50%")
	rows := rowsOf(t, p, "acquisitions", "contentions", "delay")
	for method, class := range map[string]string{"lock": "ReentrantLock$NonfairSync", "monitor": "java.lang.Object"} {
		own := events.Where(rows, func(r events.Row) bool {
			return r.Has("guest.Carried."+method) &&
				r.Has("java.lang.VirtualThread.run")
		})
		const delay = 2
		got := time.Duration(events.Sum(own, delay))
		var want time.Duration
		var times int
		for _, away := range truth.Away {
			if away.Method == "guest.Carried."+method {
				want, times = away.Sum, int(away.Times)
			}
		}
		t.Logf("%s: %d events, %v; %d waits, %v in truth", method, events.Count(own), got, times, want)
		// Around the wait a carrier may be kept from its CPU, for a time slice or two, and short
		// waits count for nothing in the truth.
		if allowed := want/10 + 2*time.Duration(times)*100*time.Microsecond; times < 10 || got < want-allowed ||
			got > want+allowed {
			t.Errorf("%s: %v in %d events, %v in truth, allowed are %v\n%v", method, got, events.Count(own), want,
				allowed, p.Comments)
		}
		for _, row := range own {
			if !strings.HasSuffix(row.Class, class) {
				t.Errorf("%s waited for a %q", method, row.Class)
			}
		}
	}
	p, _ = recordEvents(t, guest, "offcpu", 1, amount/3)
	if said := strings.Join(p.Comments, "\n"); !strings.Contains(said,
		"waiting virtual threads are on no kernel thread") {
		t.Errorf("nothing is said of virtual threads:\n%s", said)
	}
}
