package events

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// totals read what VMs have counted themselves of the bytes that their threads allocated: of all
// threads at both ends of a window, and of a thread when it ends.
type totals struct {
	services *source.Services

	mu sync.Mutex
	// last returns the readings at the time when recording ended: the records of threads that end
	// later are not read any more. nil until then.
	last func(*fold.State) map[*guest.Process]*vmReading
	// vms are attached, or have ended in a window that is not finished: that has the process still,
	// so that the pointer has a value.
	vms map[weak.Pointer[guest.Process]]*countingVM

	// following are readings of the threads that end. Only functions that have the State use it. A
	// reading that no snapshot has any more is forgotten.
	following map[*guest.Process][]weak.Pointer[vmReading]
	// left are threads that have ended lately. They are reported before they leave their VM's list,
	// which takes a while where many end at once. Only functions that have the State use it.
	left map[*guest.Process]leftThreads
}

// leftThreads are threads that have ended lately, and when.
type leftThreads map[threadKey]time.Duration

// leavingTime bounds how long a thread that was reported to end may be in its VM's list.
const leavingTime = 30 * time.Second

// add notes a thread that ends. Of more than maxWaiting, those are forgotten that ended long ago,
// or else all.
func (l leftThreads) add(t *bpf.EndedThread) {
	ended := time.Duration(t.Header.Time)
	if len(l) >= maxWaiting {
		maps.DeleteFunc(l, func(_ threadKey, at time.Duration) bool { return at < ended-leavingTime })
	}
	if len(l) >= maxWaiting {
		clear(l)
	}
	l[threadKey{t.Thread, t.OwnTid}] = ended
}

// leave takes threads out of a reading that had ended before it.
func (l leftThreads) leave(r *vmReading) {
	maps.DeleteFunc(r.threads, func(key threadKey, _ uint64) bool {
		at, ended := l[key]
		return ended && at <= r.at
	})
}

// A countingVM is an attached VM.
type countingVM struct {
	counts  *vmCounts  // nil once it has ended, as what is known of its code takes megabytes, and if it has none
	first   *vmReading // when it was attached
	host    bool       // ids of its threads are those of the agent
	endless bool       // probes do not report the ends of its threads
	lack    error      // why its counts cannot be read
}

// vmCounts are what a VM counts of its threads.
type vmCounts struct {
	counter vmruntime.AllocationCounter
	memory  *proc.Memory
}

// A threadKey identifies a thread of a VM: an address is used again, and so is an id.
type threadKey struct {
	address uint64
	id      uint32 // as the thread sees it
}

// A vmReading is the counts of a VM's threads at one time, and what threads have allocated in all
// that ended since.
type vmReading struct {
	at      time.Duration        // CLOCK_MONOTONIC; 0 until it was read
	threads map[threadKey]uint64 // counts of threads that had not ended then
	err     error                // it failed

	waiting []bpf.EndedThread // threads that ended before it was read
	ended   float64           // bytes
	cut     float64           // part of ended from the end of threads, so that no observed allocation stands for it
	over    bool              // the VM has ended
}

// maxWaiting bounds the threads that may end while a reading is under way: others seem to have run
// on.
const maxWaiting = 1 << 14

// settle completes a reading.
func (r *vmReading) settle(at time.Duration, threads map[threadKey]uint64, err error) {
	r.at, r.threads, r.err = at, threads, err
	for i := range r.waiting {
		r.end(&r.waiting[i])
	}
	r.waiting = nil
}

// end notes a thread that ends.
func (r *vmReading) end(t *bpf.EndedThread) {
	key := threadKey{t.Thread, t.OwnTid}
	switch {
	case r.at == 0:
		if len(r.waiting) < maxWaiting {
			r.waiting = append(r.waiting, *t)
		}
	case time.Duration(t.Header.Time) <= r.at:
		delete(r.threads, key) // the VM listed it still
	case r.over: // the VM's thread that ends it is among those that ended with it
	case t.Thread == 0:
		r.over = true
	default:
		r.ended += float64(t.Allocated)
		if sited := max(t.Sited, r.threads[key]); t.Sited != bpf.NotSited && t.Allocated > sited {
			r.cut += float64(t.Allocated - sited)
		}
	}
}

// sum is what the listed threads had allocated.
func (r *vmReading) sum() (sum float64) {
	for _, bytes := range r.threads {
		sum += float64(bytes)
	}
	return sum
}

// until returns what was allocated from r to a later vmReading, nil if the VM was there no more.
func (r *vmReading) until(later *vmReading) (*fold.Allocated, error) {
	switch {
	case r.err != nil:
		return nil, r.err
	case later != nil && later.err != nil && !r.over:
		return nil, later.err
	case (later == nil || later.err != nil) && !r.over:
		return nil, errors.New("the JVM ended before its counts were read")
	case later == nil || later.err != nil:
		later = &vmReading{}
	}
	a := &fold.Allocated{Alive: make(map[uint64]fold.AllocatedThread, len(later.threads)),
		Ended: r.ended - later.ended - r.sum(), Cut: max(r.cut-later.cut, 0)}
	for key, bytes := range later.threads {
		before := r.threads[key]
		a.Alive[key.address] = fold.AllocatedThread{TID: key.id, Bytes: max(float64(bytes)-float64(before), 0)}
		a.Ended += float64(before)
	}
	a.Ended = max(a.Ended, 0)
	a.Cut = min(a.Cut, a.Ended)
	return a, nil
}

// missEnds leaves out what threads may have allocated that ended.
func missEnds(a *fold.Allocated) { a.Ended, a.Cut, a.EndsUnknown = 0, 0, true }

// attached begins to read the counts of a VM; endless says that probes do not report the ends of
// its threads. The worker that has p calls it.
func (t *totals) attached(p *guest.Process, g *guest.VM, endless bool) {
	vm := &countingVM{first: &vmReading{}, endless: endless}
	counter, err := guest.As[vmruntime.AllocationCounter](g)
	if vm.lack = err; err == nil {
		vm.counts = &vmCounts{counter, g.Memory}
		t.follow(map[*guest.Process]*vmReading{p: vm.first})
		status, err := t.services.Root.Status(p.PID)
		vm.host = err == nil && len(status.NSpid) == 1
		settle := vm.counts.read()
		t.services.Owner.Do(func(*fold.State) { t.settled(p, vm.first, settle) })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vms[weak.Make(p)] = vm
}

// leave notes that a process has ended.
func (t *totals) leave(p *guest.Process) {
	t.services.Owner.Do(func(*fold.State) {
		delete(t.following, p)
		delete(t.left, p)
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if vm := t.vms[weak.Make(p)]; vm != nil {
		vm.counts = nil
	}
	maps.DeleteFunc(t.vms, func(p weak.Pointer[guest.Process], _ *countingVM) bool { return p.Value() == nil })
}

// read reads the counts of a VM's threads, and returns what completes a reading with them.
func (c *vmCounts) read() func(*vmReading) {
	list, err := c.counter.Allocated(c.memory)
	at := proc.Monotonic()
	if err != nil {
		err = fmt.Errorf("read what the JVM's threads have allocated: %w", err)
	}
	threads := make(map[threadKey]uint64, len(list))
	for _, t := range list {
		threads[threadKey{t.Address, t.ID}] = t.Bytes
	}
	return func(r *vmReading) { r.settle(at, threads, err) }
}

// settled completes a reading.
func (t *totals) settled(p *guest.Process, r *vmReading, settle func(*vmReading)) {
	settle(r)
	if l := t.left[p]; l != nil {
		l.leave(r)
	}
}

// follow has readings know of threads that end from now on.
func (t *totals) follow(readings map[*guest.Process]*vmReading) {
	forgotten := func(w weak.Pointer[vmReading]) bool { return w.Value() == nil }
	t.services.Owner.Do(func(*fold.State) {
		for p, r := range readings {
			t.following[p] = append(t.following[p], weak.Make(r))
		}
		for p, all := range t.following {
			if t.following[p] = slices.DeleteFunc(all, forgotten); len(t.following[p]) == 0 {
				delete(t.following, p)
			}
		}
		runtime.KeepAlive(readings)
	})
}

// parallelReadings is how many VMs are read at once: threads of others go on meanwhile.
const parallelReadings = 4

// end takes the readings of all windows that are still open, while records of threads that end are
// read.
func (t *totals) end() {
	complete := t.take()
	var last map[*guest.Process]*vmReading
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = func(s *fold.State) map[*guest.Process]*vmReading {
		if complete != nil {
			last, complete = complete(s), nil
		}
		return last
	}
}

// take reads the counts of all VMs, and returns what completes the readings.
func (t *totals) take() func(*fold.State) map[*guest.Process]*vmReading {
	t.mu.Lock()
	if t.last != nil {
		defer t.mu.Unlock()
		return t.last
	}
	vms := make(map[*guest.Process]*vmCounts, len(t.vms))
	for w, vm := range t.vms {
		if p := w.Value(); p != nil && vm.counts != nil {
			vms[p] = vm.counts
		}
	}
	t.mu.Unlock()
	readings := make(map[*guest.Process]*vmReading, len(vms))
	for p := range vms {
		readings[p] = &vmReading{}
	}
	if len(readings) == 0 {
		return func(*fold.State) map[*guest.Process]*vmReading { return nil }
	}
	t.follow(readings)
	var group sync.WaitGroup
	var mu sync.Mutex
	free := make(chan struct{}, parallelReadings)
	settle := make(map[*guest.Process]func(*vmReading), len(readings))
	for p := range readings {
		free <- struct{}{}
		group.Go(func() {
			s := vms[p].read()
			<-free
			mu.Lock()
			defer mu.Unlock()
			settle[p] = s
		})
	}
	group.Wait()
	return func(*fold.State) map[*guest.Process]*vmReading {
		for p, r := range readings {
			t.settled(p, r, settle[p])
		}
		return readings
	}
}

// HandleThreadEnd notes what a thread had allocated that ends.
func (e *Source) HandleThreadEnd(s *fold.State, raw []byte) {
	ended, err := bpf.DecodeEndedThread(raw)
	if err != nil {
		return
	}
	p := s.Process((*bpf.Header)(&ended.Header))
	if e.totals.following[p.Process] == nil {
		return // nobody wants to know
	}
	if e.totals.left[p.Process] == nil {
		e.totals.left[p.Process] = leftThreads{}
	}
	e.totals.left[p.Process].add(ended)
	for _, w := range e.totals.following[p.Process] {
		if r := w.Value(); r != nil {
			r.end(ended)
		}
	}
}

// between returns what the VMs counted in a closed window, and why others did not. Threads that
// ended in it may be in the ring still.
func (t *totals) between(
	ctx context.Context, w *source.Closed, before, after map[*guest.Process]*vmReading,
) map[*guest.Process]*counted {
	if err := t.services.Flush(ctx); err != nil {
		return nil
	}
	t.mu.Lock()
	vms := make(map[*guest.Process]*countingVM, len(t.vms))
	for w, vm := range t.vms {
		if p := w.Value(); p != nil {
			vms[p] = vm
		}
	}
	t.mu.Unlock()
	lost := w.After.Kernel[bpf.ThreadEndsDropped] - w.Before.Kernel[bpf.ThreadEndsDropped]
	all := make(map[*guest.Process]*counted)
	t.services.Owner.Do(func(*fold.State) {
		for p, from := range before {
			all[p] = countedFrom(from, after[p], w)
		}
		for p, vm := range vms {
			switch {
			case all[p] != nil:
			case vm.lack != nil:
				all[p] = &counted{lack: vm.lack}
			default: // it was attached in the window
				all[p] = countedFrom(vm.first, after[p], w)
				if c := all[p]; c.Allocated != nil && p.Noticed > w.Began {
					c.Before = vm.first.sum()
					c.Skew = skew(c.Total(), 0, w.Ended-w.Began)
				}
			}
			if c := all[p]; c.Allocated != nil && vm.endless {
				missEnds(c.Allocated)
			}
			if c := all[p]; c.Allocated != nil && !vm.endless && lost > 0 {
				c.EndsLost, c.Skew = true, math.Inf(1)
			}
			if c := all[p]; c.Allocated != nil && !vm.host {
				for address, thread := range c.Alive {
					thread.TID = 0
					c.Alive[address] = thread
				}
			}
		}
	})
	return all
}

// counted is what a VM counted in a window.
type counted struct {
	*fold.Allocated       // nil if that is not known
	lack            error // why not
}

// countedFrom is what was counted from one reading to another; to is nil if the VM was there no
// more at the window's end.
func countedFrom(from, to *vmReading, w *source.Closed) *counted {
	c := &counted{}
	if c.Allocated, c.lack = from.until(to); c.Allocated != nil {
		apart := (from.at - w.Began).Abs()
		if to != nil {
			apart += (to.at - w.Ended).Abs()
		}
		c.Skew = skew(c.Total(), apart, w.Ended-w.Began)
	}
	return c
}

// Threads allocate in bursts, so the rate at the two ends of a window may be many times the mean:
// there, the sum may be off by what is allocated in edgeTime. And no program counts exactly what
// its VM counts: agreement is at least what the VM allocates for it.
const (
	edgeTime  = 20 * time.Millisecond
	agreement = 0.003
)

// skew bounds the error of a sum whose readings were so far apart from the ends of a window of that
// length, both together.
func skew(sum float64, apart, length time.Duration) float64 {
	return sum * (agreement + min((apart+edgeTime).Seconds()/max(length.Seconds(), edgeTime.Seconds()), 1))
}

// note says why the sum of a process is not known; "" if it is.
func (c *counted) note(p *guest.Process) string {
	if c == nil || c.lack == nil {
		return ""
	}
	return fmt.Sprintf("the sum of process %d is estimated from the sampled allocations, because the JVM's own count "+
		"is not known: %v", p.PID, c.lack)
}
