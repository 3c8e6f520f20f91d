//go:build linux

package usdt

import (
	"runtime"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// BenchmarkWindow is what it takes to attach a probe to a process, and to take it away: wall-clock time, and the agent's
// CPU time for both.
//
//	go test -run ^$ -bench Window ./agent/calls/usdt
func BenchmarkWindow(b *testing.B) {
	t := begin(b, calls.Rate{})
	g := start(b, php.Known, php.Traced)
	t.look(g.PID())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var attaching, detaching time.Duration
	before := proc.OwnThreadTime()
	for b.Loop() {
		began := time.Now()
		links, err := t.attach(t.guest(g.PID()))
		if err != nil {
			b.Fatal(err)
		}
		attached := time.Now()
		if err := closeAll(links); err != nil {
			b.Fatal(err)
		}
		attaching, detaching = attaching+attached.Sub(began), detaching+time.Since(attached)
	}
	n := float64(b.N)
	b.ReportMetric(attaching.Seconds()*1e3/n, "ms/attach")
	b.ReportMetric(detaching.Seconds()*1e3/n, "ms/detach")
	b.ReportMetric((proc.OwnThreadTime()-before).Seconds()*1e3/n, "ms-cpu/window")
}
