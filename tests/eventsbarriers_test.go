package tests

import (
	"math"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Cards that stores make dirty, by method, are what chance allows of so many records, and their
// classes are right. Stores into young objects are not recorded. The cards of a thread after its
// last record, up to 255 in each round, are missing.
func TestRecordBarriers(t *testing.T) {
	onEveryJDK(t, func(t *testing.T, jdk jvm.JDK) {
		if jdk.Version > 25 {
			t.Skip("JDK 26 has another barrier")
		}
		guest := startEvents(t, jdk, events.Marking)
		const threads, rounds = 2, 4
		if _, err := guest.Run(threads, 1); err != nil { // compiles the methods
			t.Fatal(err)
		}
		p, truth := recordEvents(t, guest, "write-barrier", threads, rounds, "--budget=50%")
		const cards = 0
		rows := events.Own(rowsOf(t, p, "dirty_cards"))
		var all float64
		for _, m := range truth.Cards {
			all += float64(m.Times)
		}
		n, sum := float64(events.Count(rows)), events.Sum(rows, cards)
		if n < 300 {
			t.Fatalf("%.0f events of %.0f cards:\n%v", n, all, p.Comments)
		}
		t.Logf("%.0f events, %.0f of %.0f cards", n, sum, all)
		if off := sum/all - 1; math.Abs(off) > 0.02+2/math.Sqrt(n) {
			t.Errorf("%.0f cards, %.0f in truth", sum, all)
		}
		known := 0.0
		for _, m := range truth.Cards {
			own := events.InMethod(rows, m.Method)
			// Four standard errors, a little for the JVM's own stores.
			share, got := float64(m.Times)/all, events.Sum(own, cards)/sum
			t.Logf("%s: %.2f%% of all cards, %.2f%% in truth", m.Method, 100*got, 100*share)
			if allowed := 4*math.Sqrt(share*(1-share)/n) + 0.01; math.Abs(got-share) > allowed {
				t.Errorf("%s: %.2f%% of all cards, %.2f%% in truth, allowed are %.2f", m.Method, 100*got, 100*share,
					100*allowed)
			}
			for _, r := range own {
				if r.Class != m.Class && r.Class != "" {
					t.Errorf("%s stored into %s, recorded as %s", m.Method, m.Class, r.Class)
				}
				if r.Class != "" {
					known += float64(r.Count)
				}
			}
		}
		// Each round but the last one ends with a collection, which may move an object before the
		// agent has looked it up.
		t.Logf("classes of %.0f events are known", known)
		if known < n/10 {
			t.Errorf("classes of %.0f of %.0f events are known", known, n)
		}
	})
}

// Where there is no place for the probe, the profile says why: the barriers of other collectors
// call nothing, and without symbols the function of G1's is not found.
func TestRecordBarriersOfOthers(t *testing.T) {
	needs.Root(t, "sampling")
	jdk := needs.JDK(t)
	for _, test := range []struct {
		name  string
		jdk   jvm.JDK
		flags []string
		want  string
	}{
		{"Parallel", jdk, []string{"-XX:-UseG1GC", "-XX:+UseParallelGC"},
			"the collector of this JVM (Parallel) is not G1"},
		{"without symbols", strippedJDK(t, jdk), nil,
			"write barriers are not recorded: this needs JDK 17 to 25, and a libjvm with symbols"},
	} {
		t.Run(test.name, func(t *testing.T) {
			guest := startEvents(t, test.jdk, events.Marking, test.flags...)
			p, _ := recordEvents(t, guest, "write-barrier", 1, 1)
			if rows := rowsOf(t, p, "dirty_cards"); len(rows) != 0 {
				t.Errorf("recorded %+v", rows)
			}
			if notes := strings.Join(p.Comments, "\n"); !strings.Contains(notes, test.want) {
				t.Errorf("no %q in\n%s", test.want, notes)
			}
		})
	}
}
