package httpd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// The timeline has marks where a service started again, collected garbage, or the agent lost
// samples or did not record.
func TestMarks(t *testing.T) {
	s, hs := start(t, new(fake))
	for n := range uint64(10) {
		w := shop(n)
		switch {
		case n == 3:
			w.Counts.Dropped = map[string]uint64{"ring_full": 160}
		case n == 4:
			w.Processes[1].PID = 2001 // without a VM: programs like this one start all the time
		case n == 5:
			w.Processes[0].Events = []*profile.Events{{Kind: profile.Pauses, Rows: []profile.EventRow{
				{EventLabels: profile.EventLabels{Collector: "G1 Young Generation"}, Values: [3]float64{2, 3e6}},
				{EventLabels: profile.EventLabels{What: "Deoptimize"}, Values: [3]float64{1, 5e6}}}}}
		case n == 7:
			continue
		case n >= 8:
			w.Processes[0].PID = 1001
		}
		s.Observe(w)
	}
	var all, other timelineJSON
	askJSON(t, hs.URL+"/api/v1/timeline", &all)
	var texts []string
	for _, m := range all.Marks {
		texts = append(texts, fmt.Sprint(m.Kind, " ", (m.From-shop(0).Start.UnixMilli())/10_000, " ", m.Text))
	}
	want := []string{"lost 3 10 % of the samples were lost",
		"gc 5 shop.service: 2 GC pauses, 3ms (G1 Young Generation)", "gap 7 10s were not recorded",
		"start 8 shop.service started again (pid 1001)"}
	if strings.Join(texts, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
	if askJSON(t, hs.URL+"/api/v1/timeline?service=postgresql.service", &other); len(other.Marks) != 2 {
		t.Errorf("another service: %+v", other.Marks)
	}
}

// What is remembered is bounded.
func TestMarksBounds(t *testing.T) {
	var m marks
	for n := range 3 * maxMarks {
		p := &profile.Profile{Start: time.Unix(int64(10*n), 0), Duration: 10 * time.Second,
			Counts: profile.Counts{Attempted: 10, Dropped: map[string]uint64{"x": 10}}}
		for i := range 3 {
			p.Processes = append(p.Processes, &profile.Process{PID: 3*n + i, Runtime: "hotspot",
				Service: []string{"same", fmt.Sprint("new", n), fmt.Sprint("now", n)}[i]})
		}
		m.observe(p)
	}
	if len(m.list) > maxMarks || len(m.started) > maxStarted || len(m.started["same"]) > maxStartedPIDs {
		t.Errorf("%d marks, %d services, %d processes", len(m.list), len(m.started), len(m.started["same"]))
	}
}
