//go:build linux

package page

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Flags that select what TestLiveAccuracy measures:
//
//	go test -v -run LiveAccuracy ./agent/collect/calls/page -programs phased,flat -cells 1x1,127x64,1% -seconds 10
//
//	go test -v -run LiveAccuracy ./agent/collect/calls/page -programs phased,flat -cells 1x1,127x64,1% -seconds 10
var (
	programs = flag.String("programs", "adversary", "programs of the reference guest, or all")
	cells    = flag.String("cells", "1%", "STRIDExSAMPLES at 100 Hz, or a budget")
	seconds  = flag.Float64("seconds", 2, "of CPU time for each")
)

// An accuracy is the result of one run of a program.
type accuracy struct {
	overlap, plain float64 // overlap with the exact graph; plain without weights
	cost           float64 // share of the CPU time, as the engine has it
	ratio          float64 // CPU time for the same work, 1 without sampling; as good as the machine is quiet
	samples, edges int
	rate           profile.Rate // the last one
}

// TestLiveAccuracy compares sampled graphs of the reference guest with the exact ones. By default
// it runs the program of the paper's figure 1, which a timer alone gets wrong by 40 %, at the usual
// budget.
func TestLiveAccuracy(t *testing.T) {
	needs.Root(t, "sampling")
	vm, err := guests.BuildVM(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(*programs, ",")
	if *programs == "all" {
		names = guests.VMPrograms()
	}
	for _, program := range names {
		for cell := range strings.SplitSeq(*cells, ",") {
			t.Run(program+"/"+cell, func(t *testing.T) {
				a := measure(t, vm, program, cell)
				t.Logf("%s %s: overlap %.1f%% (%.1f%% without weights), cost %.2f%% (measured %+.2f%%), %d samples, "+
					"%d edges, at last %v",
					program, cell, a.overlap, a.plain, 100*a.cost, 100*(a.ratio-1), a.samples, a.edges, a.rate)
				if program == "adversary" && strings.HasSuffix(cell, "%") && a.overlap < 95 {
					t.Errorf("overlap %.1f%%", a.overlap)
				}
			})
		}
	}
}

// rounds is how often sampling is switched on and off in a run, to average out changes of the
// machine's speed.
const rounds = 8

func measure(t *testing.T, vm guests.VM, program, cell string) (a accuracy) {
	s := newStage(t, nil)
	run, err := vm.Start(context.WithoutCancel(t.Context()), guests.VMOptions{Program: program, Socket: s.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := run.WaitForAgent(); err != nil {
		t.Fatal(err)
	}
	segment, err := run.RunFor(time.Second / 2) // the threads register with the agent
	work := func() guests.Segment {
		each := float64(segment.Iterations) / segment.CPU.Seconds() * *seconds / rounds / float64(threads(program))
		done, workErr := run.Run(max(1, int(each)))
		err = errors.Join(err, workErr)
		return done
	}
	truth := func() *guests.VMGraph {
		g, graphErr := run.Graph()
		if err = errors.Join(err, graphErr); err != nil {
			t.Fatal(err)
		}
		return g
	}
	var want graph
	var off, on time.Duration
	stop := s.sample(t, cell)
	stop()
	for range rounds {
		off += work().CPU
		truth() // calls outside of sampling are left out
		stop := s.sample(t, cell)
		on += work().CPU
		stop()
		for e, n := range truth().Edges() {
			want.Add(edge{Caller: e.Caller, Site: int32(e.Site), Callee: e.Callee}, n)
		}
	}
	a.cost, a.ratio, a.rate = s.Cost().Time().Seconds()/on.Seconds(), on.Seconds()/off.Seconds(), s.last
	plain := s.plain(t)
	a.samples, a.edges = int(plain.Total()), want.Len()
	a.overlap, a.plain = cct.Overlap(&s.graph, &want), cct.Overlap(plain, &want)
	return a
}

// threads is how many threads a program has.
func threads(program string) int {
	if program == "threaded" {
		return 4
	}
	return 1
}

// sample samples with the settings in cell until stop is called.
func (s *stage) sample(t *testing.T, cell string) (stop func()) {
	t.Helper()
	var share float64
	if n, _ := fmt.Sscanf(cell, "%g%%", &share); n == 1 && strings.HasSuffix(cell, "%") {
		return s.keepTo(t, share/100)
	}
	s.last.Hz = 100
	if _, err := fmt.Sscanf(cell, "%dx%d", &s.last.Stride, &s.last.Samples); err != nil {
		t.Fatalf("cell %q: %v", cell, err)
	}
	tune(t, s, s.last.Hz, s.last.Stride, s.last.Samples)
	return func() { tune(t, s, 0, 1, 0) }
}

// guestTime is the CPU time that the connected processes have used since they began.
func (s *stage) guestTime() (sum time.Duration) {
	s.table.each(func(g *guest) {
		used, _ := proc.CPUTime(g.peer.id.PID)
		sum += used
	})
	return sum
}

// keepTo keeps to a budget until stop is called; its controller resumes its earlier state.
func (s *stage) keepTo(t *testing.T, share float64) (stop func()) {
	if s.control == nil {
		s.control = budget.New(budget.Limits{Share: share})
	}
	before := s.guestTime()
	next := func() {
		s.last = s.control.Next(budget.Usage{Guests: s.sampled + s.guestTime() - before, Cost: s.Cost()})
		if err := s.Tune(s.last); err != nil {
			t.Error(err)
		}
	}
	next()
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
				next()
			}
		}
	})
	return func() {
		close(end)
		running.Wait()
		s.sampled += s.guestTime() - before
		tune(t, s, 0, 1, 0)
	}
}
