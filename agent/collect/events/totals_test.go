package events

import (
	"errors"
	"maps"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A fakeVM has threads that allocate, as readings and records of their ends see it.
type fakeVM struct {
	now     time.Duration
	threads map[threadKey]uint64
	follow  []*vmReading
}

// read begins a reading, which is settled later.
func (vm *fakeVM) read() (r *vmReading, settle func()) {
	r = &vmReading{}
	vm.follow = append(vm.follow, r)
	at, threads := vm.now, maps.Clone(vm.threads)
	return r, func() { r.settle(at, threads, nil) }
}

// end ends a thread, which had allocated that much.
func (vm *fakeVM) end(key threadKey, allocated, sited uint64) {
	e := bpf.EndedThread{Thread: key.address, OwnTid: key.id, Allocated: allocated, Sited: sited}
	e.Header.Time = uint64(vm.now)
	for _, r := range vm.follow {
		r.end(&e)
	}
	delete(vm.threads, key)
}

func TestReadings(t *testing.T) {
	main, pool, again := threadKey{0x1000, 1}, threadKey{0x2000, 2}, threadKey{0x2000, 9}
	vm := &fakeVM{now: time.Second, threads: map[threadKey]uint64{main: 100, pool: 1000}}
	from, settle := vm.read()
	vm.now += time.Second
	vm.end(pool, 1500, 1200) // before the reading is settled: it waits
	settle()
	vm.threads[again] = 40 // at the address of the one that has ended
	vm.now += time.Second
	vm.end(threadKey{0x3000, 3}, 70, 0) // begins and ends in the window
	vm.threads[main] = 160
	listed := threadKey{0x4000, 4}
	vm.threads[listed] = 30
	to, settleTo := vm.read()
	settleTo()
	vm.end(listed, 30, 30) // its VM listed it still
	vm.now += time.Second
	vm.end(main, 1000, bpf.NotSited) // after the window
	a, err := from.until(to)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint64]fold.AllocatedThread{0x1000: {TID: 1, Bytes: 60}, 0x2000: {TID: 9, Bytes: 40}}
	if !maps.Equal(a.Alive, want) {
		t.Errorf("alive %+v, want %+v", a.Alive, want)
	}
	// 500 of the pool's thread, 70 and 30 of others. The pool's had 300 after its last site, and
	// the 70 had none.
	if a.Ended != 600 || a.Cut != 370 || a.Total() != 700 {
		t.Errorf("ended %v, cut %v, in all %v; want 600, 370, 700", a.Ended, a.Cut, a.Total())
	}
	next, err := to.until(nil)
	if next != nil || err == nil {
		t.Errorf("a VM that is gone: %+v, %v", next, err)
	}
	vm.end(again, 50, bpf.NotSited)
	vm.end(threadKey{}, 0, bpf.NotSited) // the VM's own end
	vm.end(threadKey{0x5000, 5}, 1<<20, 0)
	next, err = to.until(nil)
	if err != nil || next.Ended != 840+10 || len(next.Alive) != 0 {
		t.Errorf("a VM that ended: %+v, %v; want 850 bytes", next, err)
	}
	failed := &vmReading{}
	failed.settle(vm.now, nil, errors.New("hangs"))
	if a, err := failed.until(to); a != nil || err == nil {
		t.Errorf("from a failed reading: %+v, %v", a, err)
	}
	from.over = false
	if a, err := from.until(failed); a != nil || err == nil {
		t.Errorf("to a failed reading: %+v, %v", a, err)
	}
}

// A thread that was reported to end before a reading may be in its VM's list still.
func TestLeavingThreads(t *testing.T) {
	const s = time.Second
	leaving, later := threadKey{0x1000, 1}, threadKey{0x2000, 2}
	l := leftThreads{}
	for key, at := range map[threadKey]time.Duration{leaving: 9 * s, later: 11 * s} {
		e := bpf.EndedThread{Thread: key.address, OwnTid: key.id}
		e.Header.Time = uint64(at)
		l.add(&e)
	}
	r := &vmReading{at: 10 * s, threads: map[threadKey]uint64{leaving: 5, later: 7, {0x1000, 3}: 9}}
	l.leave(r)
	if want := map[threadKey]uint64{later: 7, {0x1000, 3}: 9}; !maps.Equal(r.threads, want) {
		t.Errorf("%v, want %v", r.threads, want)
	}
	for i := range uint64(3 * maxWaiting) {
		e := bpf.EndedThread{Thread: i}
		e.Header.Time = uint64(20*s) + i
		if l.add(&e); len(l) > maxWaiting {
			t.Fatalf("%d threads are kept", len(l))
		}
	}
}

// A fakeCounter is the list of a VM's threads.
type fakeCounter struct{ threads []vmruntime.ThreadAllocation }

func (c *fakeCounter) Allocated(vmruntime.Memory) ([]vmruntime.ThreadAllocation, error) {
	return c.threads, nil
}

// When recording has ended, nobody hears of threads that end: what they had allocated until then is
// known all the same.
func TestReadingsAtTheEnd(t *testing.T) {
	services := &source.Services{Owner: fold.NewOwner(&fold.State{}, func(err error) { panic(err) })}
	process := new(guest.Process)
	counter := &fakeCounter{threads: []vmruntime.ThreadAllocation{
		{Thread: vmruntime.Thread{Address: 0x1000, ID: 1}, Bytes: 100},
		{Thread: vmruntime.Thread{Address: 0x2000, ID: 2}, Bytes: 7},
	}}
	totals := &totals{
		services: services, following: map[*guest.Process][]weak.Pointer[vmReading]{},
		left: map[*guest.Process]leftThreads{},
		vms:  map[weak.Pointer[guest.Process]]*countingVM{weak.Make(process): {counts: &vmCounts{counter: counter}}},
	}
	first := totals.take()(nil)[process]
	totals.end()
	counter.threads = nil
	last := totals.take()(nil)[process]
	ended := &bpf.EndedThread{Thread: 0x2000, OwnTid: 2, Allocated: 7} // it was listed, but had ended before
	ended.Header.Time = uint64(last.at)
	first.end(ended)
	last.end(ended)
	if a, err := first.until(last); err != nil || a.Total() != 0 || last.sum() != 100 {
		t.Errorf("%+v, %v from readings of %v and %v", a, err, first.threads, last.threads)
	}
	if again := totals.take()(nil)[process]; again != last {
		t.Error("another window has a reading of its own")
	}
	runtime.KeepAlive(process)
}

// A VM that has ended is known as long as a window has its process, without what was read of it.
func TestEndedVMIsForgotten(t *testing.T) {
	services := &source.Services{Owner: fold.NewOwner(&fold.State{}, func(err error) { panic(err) })}
	totals := &totals{services: services, vms: map[weak.Pointer[guest.Process]]*countingVM{}}
	process, counts := new(guest.Process), new(vmCounts)
	held := weak.Make(counts)
	totals.vms[weak.Make(process)] = &countingVM{counts: counts}
	totals.leave(process)
	counts = nil
	if runtime.GC(); held.Value() != nil || len(totals.vms) != 1 {
		t.Errorf("%d VMs are known, what was read of the one that ended is %+v", len(totals.vms), held.Value())
	}
	runtime.KeepAlive(process)
	process = nil
	runtime.GC()
	if totals.leave(new(guest.Process)); len(totals.vms) != 0 {
		t.Errorf("%d VMs are known of which no window has the process", len(totals.vms))
	}
}
