package cputime

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const period = time.Millisecond

// A thread is what a test says of one.
type thread struct {
	tid      int
	samples  uint64
	ran      time.Duration
	switches uint64
	before   time.Duration // it ran before it came to a CPU, each time
}

// process makes a process of a profile of the threads that have samples, and the run times of all.
func process(pid int, threads ...thread) (*profile.Process, *fold.LifeTime) {
	p, l := &profile.Process{PID: pid}, &fold.LifeTime{Threads: map[uint32]fold.RunTime{}}
	for _, t := range threads {
		if t.samples > 0 {
			tree := new(cct.Tree[symbol.Symbol])
			tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "f"})}, t.samples)
			p.Threads = append(p.Threads, &profile.Thread{TID: t.tid, Tree: tree})
		}
		if t.ran > 0 {
			l.Threads[uint32(t.tid)] = fold.RunTime{
				Ran: t.ran, Switches: t.switches, Arrivals: t.switches / 8,
				Arriving: time.Duration(t.switches/8) * t.before,
			}
		}
	}
	return p, l
}

// total is the CPU time of a process, and seen the part that samples stand for.
func total(p *profile.Process) (total, seen time.Duration) {
	var sum, unseen float64
	for _, t := range p.Threads {
		sum += t.CPUTime(period)
		unseen += float64(t.Unseen)
	}
	return time.Duration(math.Round(sum)), time.Duration(math.Round(sum - unseen))
}

func near(a, b time.Duration) bool { return (a - b).Abs() <= time.Microsecond }

// Whatever the samples, the CPU time of threads, processes and all together is the scheduler's.
func TestTotals(t *testing.T) {
	busy, busyTimes := process(1,
		thread{tid: 1, samples: 950, ran: time.Second, switches: 10},
		thread{tid: 2, samples: 30, ran: 20 * time.Millisecond},
		thread{tid: 3, samples: 2, ran: 100 * time.Microsecond}, thread{tid: 4, ran: 3 * time.Millisecond},
		thread{tid: 5, ran: 12 * time.Millisecond})
	small, smallTimes := process(2, thread{tid: 21, samples: 3, ran: 5 * time.Millisecond})
	idle, idleTimes := process(3, thread{tid: 31, ran: 4 * time.Millisecond})
	d := &division{period: period, usual: usualLatency(true)}
	for _, p := range []struct {
		*profile.Process
		*fold.LifeTime
	}{{busy, busyTimes}, {small, smallTimes}, {idle, idleTimes}} {
		d.add([]*profile.Process{p.Process}, p.LifeTime)
	}
	d.addOther(fold.RunTime{Ran: time.Millisecond}) // run time of a process that is not in the profile
	d.finish()
	for i, want := range []time.Duration{time.Second, 20 * time.Millisecond} {
		if got := time.Duration(busy.Threads[i].CPUTime(period)); !near(got, want) {
			t.Errorf("thread %d has %v, want %v", i+1, got, want)
		}
	}
	if got, _ := total(busy); !near(got, time.Second+20*time.Millisecond+15100*time.Microsecond) {
		t.Errorf("the busy process has %v", got)
	}
	// Few samples stand for all processes that have few.
	if got, _ := total(small); !near(got, 10*time.Millisecond) {
		t.Errorf("the small process has %v, want what it, the idle one and another one ran", got)
	}
	if got, _ := total(idle); got != 0 {
		t.Errorf("the process without samples has %v of its own", got)
	}
	for _, p := range []*profile.Process{busy, small, idle} {
		for _, e := range p.Extents {
			if !e.Good() {
				t.Errorf("process %d: %+v", p.PID, e)
			}
		}
	}

	// Where nothing was sampled, that is a row. A process whose run time is not known is as it was.
	d = &division{period: period, usual: usualLatency(true)}
	idle, idleTimes = process(3, thread{tid: 31, ran: 100 * time.Millisecond, switches: 2000})
	d.add([]*profile.Process{idle}, idleTimes)
	d.finish()
	if got, seen := total(idle); got != 100*time.Millisecond || seen != 0 ||
		idle.Threads[0].UnseenIn != profile.NotSampled {
		t.Errorf("%v, %v of it in samples", got, seen)
	}
	if e := idle.Extents[0]; e.Observed != 0 || e.There != 1e8 {
		t.Errorf("%+v", e)
	}
	d = &division{period: period, usual: usualLatency(true)}
	unknown, _ := process(4, thread{tid: 41, samples: 50})
	d.add([]*profile.Process{unknown}, nil)
	d.finish()
	if got, seen := total(unknown); got != 50*time.Millisecond || seen != got {
		t.Errorf("a process without a run time has %v", got)
	}

	// A process that executed two programs has one run time, which the samples of both divide.
	d = &division{period: period, usual: usualLatency(true)}
	shell, times := process(5, thread{tid: 5, samples: 20, ran: 220 * time.Millisecond})
	program, _ := process(5, thread{tid: 5, samples: 180})
	d.add([]*profile.Process{shell, program}, times)
	d.finish()
	if a, _ := total(shell); !near(a, 22*time.Millisecond) {
		t.Errorf("the first program has %v", a)
	}
	if b, _ := total(program); !near(b, 198*time.Millisecond) {
		t.Errorf("the second program has %v", b)
	}
}

// What the kernel does to put threads on a CPU is a row, and is not divided among samples; these
// stand for what they come too late for. CPU-bound threads have none of it, whatever chance does to
// them.
func TestWaking(t *testing.T) {
	const units, before, late, tick = 10000, 8 * time.Microsecond, 18 * time.Microsecond, 20 * time.Microsecond
	rng := rand.New(rand.NewPCG(1, 2))
	for _, length := range []time.Duration{30 * time.Microsecond, 110 * time.Microsecond, 700 * time.Microsecond} {
		var samples uint64
		for range units { // the part of each unit that ticks can see
			if rng.Float64() < float64(length-late)/float64(period) {
				samples++
			}
		}
		ran := units*(length+before) + time.Duration(samples)*tick
		paced, times := process(1, thread{tid: 1, samples: samples, ran: ran, switches: units, before: before})
		d := &division{period: period, usual: usualLatency(true), tick: tick}
		d.add([]*profile.Process{paced}, times)
		d.finish()
		got, seen := total(paced)
		if !near(got, ran) {
			t.Errorf("units of %v: total %v, want %v", length, got, ran)
		}
		if want := ran - units*before; !near(seen, want) {
			t.Errorf("units of %v: samples stand for %v, want %v", length, seen, want)
		}
		// Four standard errors of the number of samples.
		missed := 0.0
		for _, m := range paced.Extents[0].Missed {
			if m.Why == whyWaking || m.Why == whyLate {
				missed += m.Amount
			}
		}
		if want := float64(units * (before +
			late)); math.Abs(missed-want) > 4*math.Sqrt(float64(samples))*float64(period) {
			t.Errorf("units of %v: %v are missed after wake-ups, want %v", length, time.Duration(missed),
				time.Duration(want))
		}
	}
	for _, samples := range []uint64{900, 1000, 1100} {
		bound, times := process(1, thread{tid: 1, samples: samples, ran: time.Second, switches: 20})
		d := &division{period: period, usual: usualLatency(true), tick: tick}
		d.add([]*profile.Process{bound}, times)
		d.finish()
		if got, seen := total(bound); !near(got, time.Second) || got-seen > 20*maxLate {
			t.Errorf("CPU-bound with %d samples: %v, %v of it in samples", samples, got, seen)
		}
	}
}

// A profile whose samples stand for less than the scheduler counted says how much, and why.
func TestAccount(t *testing.T) {
	p, times := process(1, thread{tid: 1, samples: 10000, ran: 12 * time.Second, switches: 100000,
		before: 10 * time.Microsecond})
	d := &division{period: period, usual: usualLatency(true), tick: 2 * time.Microsecond}
	d.add([]*profile.Process{p}, times)
	d.finish()
	e := p.Extents[0]
	if e.Subject != profile.SubjectCPU || e.There != 12e9 || e.Observed != 10e9 || e.Good() {
		t.Errorf("%+v", e)
	}
	var missed float64
	for _, m := range e.Missed {
		missed += m.Amount
	}
	if math.Abs(missed-2e9) > 1 || e.Missed[0].Why != whyWaking {
		t.Errorf("%+v", e.Missed)
	}
}

// Ticks that were due before a thread came to its CPU stand for a part of [waking], not of what the
// thread did.
func TestArrivingSamples(t *testing.T) {
	for _, tt := range []struct {
		early, others uint64
		each, unseen  time.Duration
	}{
		{0, 50, 1600 * time.Microsecond, 20 * time.Millisecond},
		{10, 40, 2 * time.Millisecond, 0},
		{5, 50, 1600 * time.Microsecond, 12 * time.Millisecond},
		{40, 10, 2 * time.Millisecond, 0}, // more than there was
		{50, 0, 2 * time.Millisecond, 0},
	} {
		tree := new(cct.Tree[symbol.Symbol])
		tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "finish_task_switch.isra.0"})}, tt.early)
		tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "f"})}, tt.others)
		s := &stratum{waking: 20e6, samples: tt.early + tt.others, RunTime: fold.RunTime{Ran: 100 * time.Millisecond}}
		s.parts = []*part{{threads: []*profile.Thread{{Tree: tree}}}}
		each, unseen := s.share()
		if !near(time.Duration(each), tt.each) || !near(time.Duration(unseen), tt.unseen) {
			t.Errorf("%d and %d samples: %v each and %v unseen, want %v and %v", tt.early, tt.others,
				time.Duration(each), time.Duration(unseen), tt.each, tt.unseen)
		}
		if sum := each*float64(s.samples) + unseen; math.Abs(sum-100e6) > 1 {
			t.Errorf("%d and %d samples: %v in all", tt.early, tt.others, time.Duration(sum))
		}
	}
}
