package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

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
