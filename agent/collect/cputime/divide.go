package cputime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A division divides the run time of processes in one window among their samples.
type division struct {
	period time.Duration // from one tick of a CPU to the next
	tick   time.Duration // what a tick takes of the thread that it interrupts
	usual  latency
	strata []*stratum
	rest   stratum // processes that have no stratum of their own
	idle   []*part // parts of the rest without a sample

	unsampled []source.Unsampled
}

// A part is the samples and the run time of a process in a stratum, and says how they differ.
type part struct {
	process *profile.Process
	threads []*profile.Thread // threads that were sampled
	fold.RunTime
	samples uint64
}

// A stratum is a set of threads whose run time their samples share alike.
type stratum struct {
	parts []*part
	fold.RunTime
	samples uint64
	// arrival is how many ns of RunTime a thread has before it comes to a CPU, and for setting the
	// timer that wakes it, each time that it comes.
	arrival float64
	waking  float64 // ns of RunTime that no tick can see, of the kernel
	late    float64 // ns of RunTime that no tick can see, of the thread itself: ticks come late
}

// least is how many samples a stratum should have by its run time. Fewer may be none, and then
// nothing shows what was done in that time. Whether threads are a stratum must not depend on the
// samples that they happen to have: those of threads without samples have to stand for them.
const least = 10

func (s *stratum) add(p *part) {
	s.parts = append(s.parts, p)
	s.RunTime.Add(p.RunTime)
	s.samples += p.samples
}

// own reports whether samples can divide the part's run time without those of others.
func (d *division) own(p *part) bool {
	return p.samples > 0 && p.Ran >= least*d.period
}

// add adds a process with its run times; nil if it did not run. It is in the profile once for each
// program that it executed, the last one last.
func (d *division) add(programs []*profile.Process, l *fold.LifeTime) {
	byThread := map[int]*part{}
	last := programs[len(programs)-1]
	rest := &part{process: last}
	if l != nil {
		rest.RunTime = l.Rest
	}
	for _, p := range programs {
		for _, t := range p.Threads {
			one := byThread[t.TID]
			if one == nil {
				one = &part{process: last}
				if l != nil {
					one.RunTime = l.Threads[uint32(t.TID)]
				}
				byThread[t.TID] = one
			}
			one.threads = append(one.threads, t)
			if t.Tree != nil {
				one.samples += t.Tree.Total()
			}
		}
	}
	if l != nil {
		for tid, r := range l.Threads {
			if byThread[int(tid)] == nil {
				rest.RunTime.Add(r)
			}
		}
	}
	for _, one := range byThread {
		if d.own(one) {
			s := &stratum{}
			s.add(one)
			d.strata = append(d.strata, s)
			continue
		}
		rest.threads = append(rest.threads, one.threads...)
		rest.RunTime.Add(one.RunTime)
		rest.samples += one.samples
	}
	switch {
	case d.own(rest):
		s := &stratum{}
		s.add(rest)
		d.strata = append(d.strata, s)
	case rest.Ran > 0 || rest.samples > 0:
		d.rest.add(rest)
		if rest.samples == 0 {
			d.idle = append(d.idle, rest)
		}
	}
}

// addOther adds the run time of a process that has no samples, and is not in the profile.
func (d *division) addOther(r fold.RunTime) { d.rest.RunTime.Add(r) }

// A latency is what is known beforehand of how long no tick can see a thread that has come to a
// CPU: the mean and the standard deviation of what machines have, in ns.
type latency struct{ mean, deviation float64 }

// usualLatency is that of timer interrupts. It was measured on a small virtual machine, where it is
// 10 µs under load and 30 µs without; on bare metal the interrupt is not passed on by anybody.
func usualLatency(virtual bool) latency {
	if virtual {
		return latency{15e3, 10e3}
	}
	return latency{1e3, 1e3}
}

// maxLate bounds for how long no tick is taken to see a thread that has come to a CPU.
const maxLate = 100 * time.Microsecond

// fewArrivals is how many measured arrivals of a stratum weigh as much as those of all.
const fewArrivals = 4

// arrivals sets what threads ran before they came to a CPU, and to set timers, from the measured
// arrivals of each stratum, and of all.
func arrivals(strata []*stratum) {
	var all fold.RunTime
	for _, s := range strata {
		all.Add(s.RunTime)
	}
	usual := float64(all.Arriving) / max(float64(all.Arrivals), 1)
	for _, s := range strata {
		s.arrival = (float64(s.Arriving) + fewArrivals*usual) / (float64(s.Arrivals) + fewArrivals)
	}
}

// ticking is the part of a stratum's run time that ticks took, in ns, and that no further tick
// could see. A tick that comes while another one is handled comes late, and is not lost; but one
// that is due when a thread has just gone to sleep would have come earlier without it. So this is
// what a tick takes for each stretch on a CPU that had one, and half of that if stretches are
// longer than the period.
func (d *division) ticking(s *stratum) float64 {
	return float64(d.tick) * min(float64(s.samples), float64(s.Switches)/2)
}

// missing is the run time of a stratum in ns that samples do not stand for; negative if they stand
// for more.
func (d *division) missing(s *stratum) float64 {
	return float64(s.Ran) - float64(s.samples)*float64(d.period)
}

// late is how long no tick can see a thread that has come to a CPU, in ns: the mean of what is
// usual and of what fits the run times of all strata best, weighted by how exact both are. The
// number of samples of a stratum varies by its root.
func (d *division) late(strata []*stratum) float64 {
	period := float64(d.period)
	exact := 1 / (d.usual.deviation * d.usual.deviation)
	sum := d.usual.mean * exact
	for _, s := range strata {
		if s.samples == 0 || s.Ran == 0 {
			continue
		}
		switches := float64(s.Switches)
		variance := float64(s.samples) * period * period
		sum += switches * (d.missing(s) - d.ticking(s) - s.arrival*switches) / variance
		exact += switches * switches / variance
	}
	return min(max(sum/exact, 0), float64(maxLate))
}

// arrivalFunction is the function of the kernel in which late ticks come: a thread enables
// interrupts there when it has come to a CPU.
const arrivalFunction = "finish_task_switch"

// arriving is how many samples of the stratum are of ticks that were due before their threads were
// on a CPU.
func (s *stratum) arriving() (n uint64) {
	for _, p := range s.parts {
		for _, t := range p.threads {
			if t.Tree == nil {
				continue
			}
			for id, node := range t.Tree.Nodes() {
				if node.Self > 0 && id != cct.Root && strings.HasPrefix(node.Key.Value().Function, arrivalFunction) {
					n += node.Self
				}
			}
		}
	}
	return n
}

// share is the run time of one sample, and what no sample stands for, in ns. Samples of ticks that
// were due before the thread came stand for a part of what passed until it came, and the others for
// all that it did then.
func (s *stratum) share() (each, unseen float64) {
	if s.waking < 1 {
		return (float64(s.Ran) - s.waking) / float64(s.samples), s.waking
	}
	early := s.arriving()
	if s.samples > early {
		each = (float64(s.Ran) - s.waking) / float64(s.samples-early)
		if unseen = s.waking - float64(early)*each; unseen >= 0 {
			return each, unseen
		}
	}
	return float64(s.Ran) / float64(s.samples), 0
}

// finish gives threads the CPU time that their samples stand for.
func (d *division) finish() {
	strata := d.strata
	if d.rest.samples > 0 {
		strata = append(strata, &d.rest)
	} else {
		for _, p := range d.idle {
			p.process.Threads = append(p.process.Threads, notSampled(p.process, p.Ran))
		}
	}
	arrivals(strata)
	late := d.late(strata)
	for _, s := range strata {
		if s.Ran == 0 {
			continue // its run time was not followed
		}
		s.waking = min(s.arrival*float64(s.Switches), float64(s.Ran)/2)
		s.late = min(late*float64(s.Switches), float64(s.Ran)-s.waking)
		each, unseen := s.share()
		for _, p := range s.parts {
			for _, t := range p.threads {
				t.SampleTime = each
				if t.Tree != nil && unseen >= 1 {
					t.Unseen = time.Duration(unseen * float64(t.Tree.Total()) / float64(s.samples))
					t.UnseenIn = profile.Waking
				}
			}
		}
	}
	// The accounts are made in this order.
	slices.SortStableFunc(strata, func(a, b *stratum) int { return cmp.Compare(d.missing(b), d.missing(a)) })
	for _, s := range strata {
		for _, p := range s.parts {
			d.account(p, s)
		}
	}
	if d.rest.samples == 0 {
		for _, p := range d.rest.parts {
			d.account(p, &d.rest)
		}
	}
}

// notSampled is a thread that stands for those of a process that ran so long and were not sampled.
func notSampled(p *profile.Process, ran time.Duration) *profile.Thread {
	return &profile.Thread{TID: p.PID, Name: p.Comm, Tree: new(cct.Tree[symbol.Symbol]), Unseen: ran,
		UnseenIn: profile.NotSampled}
}

// Why CPU time was not sampled.
const (
	whyWaking = "the clock does not tick while the kernel puts a thread on a CPU or sets the timer that wakes " +
		"it ([waking])"
	whyLate    = "the clock does not tick in the first microseconds after that"
	whyTicking = "the sampling interrupts took it"
	whyIdle    = "these threads ran for only a few clock periods"
	whyLost    = "more ticks were lost than chance explains"
)

// tolerance is how many standard errors of the number of samples are chance.
const tolerance = 2.6

// account notes how much of the process's run time its samples stand for.
func (d *division) account(p *part, s *stratum) {
	e := profile.Extent{Subject: profile.SubjectCPU, What: "CPU time", Unit: "nanoseconds", Source: "the scheduler",
		There: float64(p.Ran)}
	stood := float64(p.samples) * float64(d.period)
	lost := e.There - stood
	if lost <= tolerance*math.Sqrt(e.There*float64(d.period)) {
		lost = 0
	}
	e.Observed = e.There - lost
	if lost > 0 {
		miss := func(amount float64, why string) {
			if amount = min(amount, lost); amount >= 1 {
				e.Miss(amount, why)
				lost -= amount
			}
		}
		if p.samples == 0 {
			miss(lost, whyIdle)
		}
		if s.Ran > 0 {
			part := float64(p.Ran) / float64(s.Ran)
			miss(s.waking*part, whyWaking)
			miss(s.late*part, whyLate)
			miss(d.ticking(s)*part, whyTicking)
		}
		for i := range d.unsampled { // each process may have run then, but not all of them all the time
			u := &d.unsampled[i]
			missed := min(float64(u.Time), lost)
			miss(missed, fmt.Sprintf("CPU %d was not sampled", u.CPU))
			u.Time -= time.Duration(missed)
		}
		miss(lost, whyLost)
	}
	p.process.Extents = profile.AddExtents(p.process.Extents, e)
}
