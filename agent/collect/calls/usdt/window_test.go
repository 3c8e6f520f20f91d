//go:build linux

package usdt

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// BenchmarkWindow measures attaching a probe to a process and removing it: wall-clock time, and the
// agent's CPU time for both.
//
//	go test -run ^$ -bench Window ./agent/collect/calls/usdt
func BenchmarkWindow(b *testing.B) {
	t := begin(b, profile.Rate{})
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
		if err := attach.CloseLinks(links); err != nil {
			b.Fatal(err)
		}
		attaching, detaching = attaching+attached.Sub(began), detaching+time.Since(attached)
	}
	n := float64(b.N)
	b.ReportMetric(attaching.Seconds()*1e3/n, "ms/attach")
	b.ReportMetric(detaching.Seconds()*1e3/n, "ms/detach")
	b.ReportMetric((proc.OwnThreadTime()-before).Seconds()*1e3/n, "ms-cpu/window")
}

// BenchmarkInterruption measures what windows take from a process that makes no calls, in us of its
// time for each: see interruptions. The process spins with and without windows in turn; the figure
// is the median of the differences. Run it on an idle machine with two CPUs.
//
//	go test -run ^$ -bench Interruption -benchtime 200x ./agent/collect/calls/usdt
func BenchmarkInterruption(b *testing.B) {
	t := begin(b, profile.Rate{})
	g := start(b, php.Known, php.Traced)
	t.look(g.PID())
	spin := func() float64 { // returns the us of 200 ms that the process lost
		answer, err := g.Order("spin 200")
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(answer, 64)
		if err != nil {
			b.Fatal(err)
		}
		return ns / 1e3
	}
	var windows int
	var each []float64
	for b.Loop() {
		without := spin()
		stop, result := make(chan struct{}), make(chan int)
		go func() { result <- t.open(g.PID(), stop) }()
		with := spin()
		close(stop)
		n := <-result
		windows += n
		each = append(each, (with-without)/float64(n))
	}
	slices.Sort(each)
	b.ReportMetric(each[len(each)/2], "us/window")
	b.ReportMetric(float64(windows)/float64(b.N), "windows/op")
}

// open opens and closes windows until stop; it returns their number, the last of which may have
// ended late.
func (b *bench) open(pid int, stop <-chan struct{}) (windows int) {
	for {
		links, err := b.attach(b.guest(pid))
		if err := errors.Join(err, attach.CloseLinks(links)); err != nil {
			b.t.Error(err)
			return max(windows, 1)
		}
		windows++
		select {
		case <-stop:
			return windows
		default:
		}
	}
}
