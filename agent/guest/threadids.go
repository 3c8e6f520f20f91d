package guest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Where nothing in a VM's library leads from a thread to the VM's structure for it, the kernel side
// finds it by the thread's id: it learns it when the thread is sampled in Java code. Threads that
// were not sampled there yet are read in the VM's list of threads: when the agent attaches, and
// when a thread is sampled that nobody knows.

const (
	threadsPause = 250 * time.Millisecond // least time between two reads of a list
	threadsShare = 50                     // one part in so many of the time is the most that goes into reading a list
)

// threadList is when the VM's list of threads is read.
type threadList struct {
	next   atomic.Int64 // not before that, ns of CLOCK_MONOTONIC; 0: never, as the kernel side needs none
	wanted atomic.Bool
}

// ThreadsDue is when the VM's list of threads may be read again, CLOCK_MONOTONIC; 0 if the kernel
// side needs none.
func (p *Process) ThreadsDue() time.Duration { return time.Duration(p.threads.next.Load()) }

// SetThreadsDue has the VM's list of threads not read before that time of CLOCK_MONOTONIC.
func (p *Process) SetThreadsDue(at time.Duration) { p.threads.next.Store(int64(at)) }

// WantThreads has the worker read the VM's list of threads when it comes to the process.
func (p *Process) WantThreads() { p.threads.wanted.Store(true) }

// TakeThreadsWanted reports whether WantThreads was called since the last time.
func (p *Process) TakeThreadsWanted() bool { return p.threads.wanted.Swap(false) }

// readThreads has the kernel side know the threads that the VM lists.
func (rs *Resolver) readThreads(p *Process, g *VM) {
	began := proc.Monotonic()
	err := rs.announceThreads(g)
	rs.reads.count(err)
	if errors.Is(err, errThreadRoom) {
		p.Note(fmt.Sprintf("process %d: %v", p.PID, err))
	}
	now := proc.Monotonic()
	p.SetThreadsDue(now + max(threadsPause, threadsShare*(now-began)))
}

var errThreadRoom = fmt.Errorf("it has more than %d Java threads, or all JVMs without the symbol "+
	"Thread::_thr_current have more than %d in total: "+
	"samples of the others in native code may lack their Java callers", vmruntime.MaxListedThreads, bpf.MaxKnownThreads)

func (rs *Resolver) announceThreads(g *VM) error {
	// Who is in the list was there when this was taken: a thread that began later has the same id
	// by chance.
	var asOf unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &asOf); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	lister, err := As[vmruntime.ThreadLister](g)
	if err != nil {
		return err
	}
	threads, err := lister.Threads()
	if err != nil {
		return err
	}
	if len(threads) == vmruntime.MaxListedThreads {
		err = errThreadRoom
	}
	before := g.threads
	g.threads = make(map[uint32]struct{}, len(threads))
	for _, t := range threads {
		g.threads[t.ID] = struct{}{}
		known := bpf.KnownThread{Thread: t.Address, AsOf: uint64(asOf.Nano()), Serial: g.Kernel.Serial}
		switch e := rs.objects.KnownThreads.Put(g.threadKey(t.ID), &known); {
		case errors.Is(e, unix.E2BIG):
			err = errThreadRoom
		case e != nil:
			return fmt.Errorf("register thread in the kernel: %w", e)
		}
	}
	// The kernel side forgets threads that end, but not one that ended while the list was read.
	for id := range before {
		if _, ok := g.threads[id]; !ok {
			rs.forgetThread(g, id)
		}
	}
	return err
}

func (g *VM) threadKey(id uint32) *bpf.KnownThreadKey {
	return &bpf.KnownThreadKey{Pid: uint32(g.pid), OwnTid: id}
}

// forgetThread has the kernel side forget a thread, if it is still known.
func (rs *Resolver) forgetThread(g *VM, id uint32) {
	var known bpf.KnownThread
	m := rs.objects.KnownThreads
	if err := m.Lookup(g.threadKey(id), &known); err == nil && known.Serial == g.Kernel.Serial {
		_ = m.Delete(g.threadKey(id)) // it may be gone by now, which is as well
	} else if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		rs.log.Debug("cannot look up a thread", "pid", g.pid, "err", err)
	}
}

// forgetThreads is for a VM that is gone.
func (rs *Resolver) forgetThreads(g *VM) {
	for id := range g.threads {
		rs.forgetThread(g, id)
	}
	g.threads = nil
}
