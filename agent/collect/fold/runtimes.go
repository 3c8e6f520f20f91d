package fold

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Life is one process from its first thread to its last, whatever programs it has executed.
type Life struct {
	PID   int
	Start uint64 // CLOCK_BOOTTIME, ns
}

// A RunTime is how long threads were on a CPU, and how often they have left one, as the scheduler
// counts it.
type RunTime struct {
	Ran      time.Duration
	Switches uint64
	Arrivals uint64 // context switches to these threads that were measured
	// Arriving is the run time charged before the threads were on the CPU, in these switches, and
	// that in which they set the timer that wakes them.
	Arriving time.Duration
}

// Add adds the run time of other threads.
func (r *RunTime) Add(o RunTime) {
	r.Ran += o.Ran
	r.Switches += o.Switches
	r.Arrivals += o.Arrivals
	r.Arriving += o.Arriving
}

// maxThreadTimes bounds the threads of a window whose run times are kept one by one, and its
// processes.
const maxThreadTimes = 1 << 16

// A LifeTime is the run time of a process's threads in a window.
type LifeTime struct {
	Threads map[uint32]RunTime // by thread
	Rest    RunTime            // sum of the threads beyond the bound
}

// addRunTime adds to the run time of a thread in the window.
func (w *Window) addRunTime(of Life, tid uint32, r RunTime) {
	if w.RunTimes == nil {
		w.RunTimes = map[Life]*LifeTime{}
	}
	l := w.RunTimes[of]
	if l == nil && len(w.RunTimes) >= maxThreadTimes {
		of = Life{}
		l = w.RunTimes[of]
	}
	if l == nil {
		l = &LifeTime{Threads: map[uint32]RunTime{}}
		w.RunTimes[of] = l
	}
	sum, known := l.Threads[tid]
	if !known {
		if w.threadTimes >= maxThreadTimes {
			l.Rest.Add(r)
			return
		}
		w.threadTimes++
	}
	sum.Add(r)
	l.Threads[tid] = sum
}

// runTimes follow how long threads have run. Readings of all threads and records of those that have
// ended add to the open windows what each thread has run since it was last seen. The zero value has
// seen no thread.
type runTimes struct {
	threads  map[uint32]*seenThread
	readings int    // under way
	applied  uint64 // readings
	// CLOCK_BOOTTIME: threads of chosen processes that existed then, and later, have been seen; 0
	// for none
	first    time.Duration
	complete time.Duration // the same, of the last reading
	ended    []uint32      // threads that are kept until no reading is under way: it may have seen them
}

type seenThread struct {
	born uint64
	RunTime
	reading uint64 // number of the reading that saw it last
	ended   bool
}

// vanished is after how many readings a thread is forgotten that they did not see, and whose end
// was not recorded.
const vanished = 100

// BeginReading must be called before threads are read that ReadRunTimes gets.
func (s *State) BeginReading() { s.runs.readings++ }

// ReadRunTimes takes the run times of all threads of the chosen processes, as a reading found them
// that began at that time (CLOCK_BOOTTIME). What they ran before they were first seen counts only
// if they are younger than the last reading: the processes of others were not chosen then. A failed
// reading is passed as nil.
func (s *State) ReadRunTimes(began time.Duration, threads []bpf.ThreadRun) {
	a := &s.runs
	a.readings--
	a.applied++
	for i := range threads {
		t := &threads[i]
		s.ran(Life{int(t.Pid), t.Start}, t.Tid, t.Born, RunTime{time.Duration(t.Ran), t.Switches, t.Arrivals,
			time.Duration(t.Arriving)}, false)
	}
	if threads != nil {
		if a.first == 0 {
			a.first = began
		}
		a.complete = max(a.complete, began)
		for tid, t := range a.threads {
			if !t.ended && t.reading+vanished < a.applied {
				delete(a.threads, tid)
			}
		}
	}
	if a.readings == 0 {
		for _, tid := range a.ended {
			if t := a.threads[tid]; t != nil && t.ended {
				delete(a.threads, tid)
			}
		}
		a.ended = a.ended[:0]
	}
}

// ThreadEnded takes the run time of a thread that has ended.
func (s *State) ThreadEnded(e *bpf.ThreadEnd) {
	if s.runs.complete == 0 {
		return // run times are not read
	}
	of := Life{int(e.Header.Pid), e.Header.Start}
	s.ran(of, e.Header.Tid, e.Born, RunTime{time.Duration(e.Ran), e.Switches, e.Arrivals, time.Duration(e.Arriving)},
		true)
	end := time.Duration(e.Header.Time)
	born := time.Duration(e.Born) - (proc.SinceBoot() - proc.Monotonic())
	p := s.Known((*bpf.Header)(&e.Header))
	for w := range s.windows {
		if p == nil || !w.Waits || !w.Wants(of.PID) {
			continue
		}
		on := time.Duration(0)
		if l := w.RunTimes[of]; l != nil {
			on = l.Threads[e.Header.Tid].Ran
		}
		w.addEnded(p, end-max(born, w.Began), on)
	}
}

// addEnded adds how long a thread that has ended existed in the window, and how much of that it was
// on a CPU.
func (w *Window) addEnded(p *Process, existed, on time.Duration) {
	if w.ended == nil {
		w.ended = map[*Process]profile.ThreadTime{}
	}
	existed = max(existed, 0)
	sum := w.ended[p]
	sum.Wall += existed
	sum.On += min(on, existed)
	w.ended[p] = sum
}

// AddEndedTimes adds what is known of threads that ended in the window, where AddThreadTime has all
// others.
func (w *Window) AddEndedTimes() {
	for p, sum := range w.ended {
		sum.TID, sum.Name = profile.EndedThreads, "threads that ended"
		r := w.EventSet(p).ByKind(profile.OffCPU)
		r.times = append(r.times, sum)
	}
	w.ended = nil
}

// ran adds to the open windows what a thread has run since it was last seen.
func (s *State) ran(of Life, tid uint32, born uint64, total RunTime, ended bool) {
	a := &s.runs
	t := a.threads[tid]
	if t != nil && t.born != born {
		if t.born > born {
			return // an old reading of an earlier thread
		}
		t = nil
	}
	var since RunTime
	switch {
	case t != nil:
		since = RunTime{
			max(total.Ran-t.Ran, 0), total.Switches - min(total.Switches, t.Switches),
			total.Arrivals - min(total.Arrivals, t.Arrivals), max(total.Arriving-t.Arriving, 0),
		}
	case ended && a.first != 0 && time.Duration(born) >= a.first:
		since = total // no reading came in its life, though its record may come after one
	case !ended && a.complete != 0 && time.Duration(born) >= a.complete:
		since = total
	}
	if since.Ran > 0 {
		for w := range s.windows {
			if w.Wants(of.PID) {
				w.addRunTime(of, tid, since)
			}
		}
	}
	if ended && a.readings == 0 {
		delete(a.threads, tid)
		return
	}
	if t == nil {
		t = &seenThread{born: born}
		if a.threads == nil {
			a.threads = map[uint32]*seenThread{}
		}
		a.threads[tid] = t
	}
	t.RunTime = RunTime{max(t.Ran, total.Ran), max(t.Switches, total.Switches), max(t.Arrivals, total.Arrivals),
		max(t.Arriving, total.Arriving)}
	t.reading = a.applied
	if ended && !t.ended {
		t.ended = true
		a.ended = append(a.ended, tid)
	}
}
