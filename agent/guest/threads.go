package guest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// The kernel keeps 15 bytes of a thread's name. The VM has the whole: it is read when a thread is
// sampled whose name is not known, or that the kernel calls otherwise than before, and again once
// in a while, as ids are used again. Each sample has the kernel's name at its time, which says
// which of the thread's names it is.

const (
	threadNamesAge = time.Minute                // age after which names are read again, if the process is sampled
	maxThreadNames = vmruntime.MaxListedThreads // names of a process that are kept, and names that may be missing
	maxNamesOfOne  = 16                         // names of a thread that are kept: the last ones
)

// threadNames are what a VM calls its threads.
type threadNames struct {
	known  atomic.Pointer[knownNames]
	read   atomic.Int64 // when, ns of CLOCK_MONOTONIC
	next   atomic.Int64 // not before that
	wanted atomic.Bool

	mu      sync.Mutex
	missing map[uint32]string // threads that were sampled and whose names are not known, by the kernel's
}

// knownNames are names that were read. They do not change.
type knownNames struct {
	process string              // the kernel's name of the process, which threads have that were given none
	of      map[uint32][]string // by thread id as the agent sees it, the last one first; "" for threads that have none
}

// MissesThreadName reports whether a worker is to read the names of threads now, as a thread was
// sampled whose name is not known or is old. comm is the kernel's name, up to a zero byte. The
// drainer calls it for each sample.
func (p *Process) MissesThreadName(tid uint32, comm []byte, now time.Duration) bool {
	t := &p.threadNames
	if p.Attachment.Load() == 0 || now < time.Duration(t.next.Load()) {
		return false
	}
	if known := t.known.Load(); known != nil && now < time.Duration(t.read.Load())+threadNamesAge {
		if _, ok := known.of[tid]; ok && known.explains(tid, comm) {
			return false
		}
	}
	t.mu.Lock()
	if t.missing == nil {
		t.missing = make(map[uint32]string)
	}
	if len(t.missing) < maxThreadNames {
		t.missing[tid] = symbol.CommName(comm)
	}
	t.mu.Unlock()
	return !t.wanted.Swap(true)
}

// explains reports whether the kernel shortens one of a thread's names to comm, or has none of its
// own for it. It seldom allocates, as it is called for each sample.
func (k *knownNames) explains(tid uint32, comm []byte) bool {
	if i := bytes.IndexByte(comm, 0); i >= 0 {
		comm = comm[:i]
	}
	if string(comm) == k.process {
		return true
	}
	for _, name := range k.of[tid] {
		if name == "" || string(comm) == name || len(comm) == symbol.CommBytes &&
			strings.HasPrefix(name, string(comm)) {
			return true
		}
	}
	text := symbol.CommName(comm)
	return slices.ContainsFunc(k.of[tid], func(name string) bool { return shortens(text, name) })
}

// ThreadName is the name of a thread while the kernel called it comm: the VM's, or else the
// kernel's. An id may have become that of another thread since the VM's names were read, so the
// kernel's must be its beginning, or be that of a thread without a name of its own.
func (p *Process) ThreadName(tid int, comm string) string {
	known := p.threadNames.known.Load()
	if known == nil {
		return comm
	}
	names := known.of[uint32(tid)]
	for _, name := range names {
		if name != "" && shortens(comm, name) {
			return name
		}
	}
	if len(names) > 0 && names[0] != "" && comm == known.process {
		return names[0]
	}
	return comm
}

// shortens reports whether the kernel may have comm as the name of a thread. HotSpot cuts names
// from JDK 23 on in the middle.
func shortens(comm, name string) bool {
	if strings.HasPrefix(name, comm) {
		// A character of up to six bytes may have been cut.
		return comm == name || kernelBytes(comm) >= symbol.CommBytes-5
	}
	begin, end, ok := strings.Cut(comm, "..")
	return ok && strings.HasPrefix(name, begin) && strings.HasSuffix(name, end)
}

// kernelBytes is how long a name is as HotSpot gives it to the kernel: characters that UTF-8 has in
// four bytes take six.
func kernelBytes(name string) int {
	n := len(name)
	for _, r := range name {
		if r > 0xffff {
			n += 2
		}
	}
	return n
}

// readThreadNames reads what the VM calls its threads, if that is wanted. The worker that has p
// calls it.
func (rs *Resolver) readThreadNames(p *Process, g *VM) {
	t := &p.threadNames
	if !t.wanted.Swap(false) {
		return
	}
	began := proc.Monotonic()
	names, err := rs.threadNames(p, g)
	now := proc.Monotonic()
	t.next.Store(int64(now + max(threadsPause, threadsShare*(now-began))))
	if err != nil {
		t.next.Store(int64(now + threadNamesAge))
		rs.log.Debug("cannot read names of threads", "pid", p.PID, "err", err)
		return
	}
	before := t.known.Load()
	if before == nil {
		before = &knownNames{}
	}
	known := &knownNames{p.Describe().Task, make(map[uint32][]string, len(names))}
	for tid, name := range names {
		known.of[tid] = withName(before.of[tid], name)
	}
	t.mu.Lock()
	// The VM does not know these, or not by that name any more: they are not asked for again soon.
	for tid, comm := range t.missing {
		switch all, ok := known.of[tid]; {
		case !ok && len(known.of) < 2*maxThreadNames:
			known.of[tid] = []string{""}
		case ok && !known.explains(tid, []byte(comm)):
			known.of[tid] = append(all[:1:1], withName(all[1:], comm)...)
		}
	}
	t.missing = nil
	t.mu.Unlock()
	t.known.Store(known)
	t.read.Store(int64(now))
}

// withName returns names with one more, which becomes the first.
func withName(names []string, name string) []string {
	all := append(make([]string, 0, len(names)+1), name)
	for _, other := range names {
		if other != name && other != "" && len(all) < maxNamesOfOne {
			all = append(all, other)
		}
	}
	return all
}

// threadNames reads the names by the ids that the agent sees.
func (rs *Resolver) threadNames(p *Process, g *VM) (map[uint32]string, error) {
	namer, err := As[vmruntime.ThreadNamer](g)
	if err != nil {
		return nil, err
	}
	own, err := namer.ThreadNames()
	rs.reads.count(err)
	if err != nil {
		return nil, err
	}
	for id, name := range own {
		own[id] = symbol.CleanName(name)
	}
	status, err := rs.root.Status(p.PID)
	if err != nil {
		return nil, err
	}
	if len(status.NSpid) == 1 {
		return own, nil
	}
	// In a PID namespace the VM has other ids.
	p.threadNames.mu.Lock()
	tids := make([]uint32, 0, len(p.threadNames.missing))
	for tid := range p.threadNames.missing {
		tids = append(tids, tid)
	}
	p.threadNames.mu.Unlock()
	names := make(map[uint32]string, len(tids))
	if before := p.threadNames.known.Load(); before != nil {
		for tid := range before.of {
			tids = append(tids, tid)
		}
	}
	for _, tid := range tids {
		thread, err := rs.root.ThreadStatus(p.PID, int(tid))
		if err == nil && len(names) < maxThreadNames {
			names[tid] = own[uint32(thread.InnermostPID())]
		}
	}
	return names, nil
}

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
