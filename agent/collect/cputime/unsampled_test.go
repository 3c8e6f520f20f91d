package cputime

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A CPU that was not sampled for a while has the run time of its threads, and the profile says why
// its samples are so few.
func TestUnsampledCPU(t *testing.T) {
	sampled, sampledTimes := process(1, thread{tid: 1, samples: 10_000, ran: 10 * time.Second})
	cut, cutTimes := process(2, thread{tid: 2, samples: 4_000, ran: 10 * time.Second})
	d := &division{period: period, usual: usualLatency(true), unsampled: []source.Unsampled{{CPU: 1,
		Time: 6200 * time.Millisecond}}}
	d.add([]*profile.Process{sampled}, sampledTimes)
	d.add([]*profile.Process{cut}, cutTimes)
	d.finish()
	if got, _ := total(cut); !near(got, 10*time.Second) {
		t.Errorf("%v of CPU time", got)
	}
	if e := sampled.Extents[0]; !e.Good() || len(e.Missed) > 0 {
		t.Errorf("of the CPU that was sampled: %+v", e)
	}
	e := cut.Extents[0]
	if e.Good() || e.Share() > 0.41 || len(e.Missed) != 1 || !strings.Contains(e.Missed[0].Why,
		"CPU 1 was not sampled") {
		t.Errorf("of the CPU that was not: %+v", e)
	}
}
