package target

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// The kernel keeps 15 bytes of a thread's name. The VM has the whole: it is read when a thread is sampled whose name is not known, and
// again once in a while, as threads are renamed and ids are used again.

const (
	threadNamesAge = time.Minute                // after which names are read again, if the process is sampled
	maxThreadNames = vmruntime.MaxListedThreads // of a process that are kept, and that may be missing
	commBytes      = 15                         // of a thread's name that the kernel keeps
)

// threadNames are what a VM calls its threads.
type threadNames struct {
	known  atomic.Pointer[map[uint32]string] // by thread id as the agent sees it; "" for threads that have none. It does not change
	read   atomic.Int64                      // when, ns of CLOCK_MONOTONIC
	next   atomic.Int64                      // not before that
	wanted atomic.Bool

	mu      sync.Mutex
	missing map[uint32]struct{} // threads that were sampled and are not known
}

// MissesThreadName reports whether a worker is to read the names of threads now, as a thread was sampled whose name is not known or is
// old. The drainer calls it for each sample.
func (p *Process) MissesThreadName(tid uint32, now time.Duration) bool {
	t := &p.threadNames
	if p.Attachment.Load() == 0 || now < time.Duration(t.next.Load()) {
		return false
	}
	names := t.known.Load()
	if names != nil {
		if _, ok := (*names)[tid]; ok && now < time.Duration(t.read.Load())+threadNamesAge {
			return false
		}
	}
	t.mu.Lock()
	if t.missing == nil {
		t.missing = make(map[uint32]struct{})
	}
	if len(t.missing) < maxThreadNames {
		t.missing[tid] = struct{}{}
	}
	t.mu.Unlock()
	return !t.wanted.Swap(true)
}

// ThreadName is the name of a thread: the VM's, or else the kernel's. An id may have become that of another thread since the VM's names were
// read, so the kernel's must be its beginning, or be that of a thread without a name of its own.
func (p *Process) ThreadName(tid int, comm string) string {
	names := p.threadNames.known.Load()
	if names == nil {
		return comm
	}
	name := (*names)[uint32(tid)]
	if name == "" || !shortens(comm, name) && comm != p.Describe().Comm {
		return comm
	}
	return name
}

// shortens reports whether the kernel may have comm as the name of a thread. HotSpot cuts names from JDK 23 on in the middle.
func shortens(comm, name string) bool {
	if strings.HasPrefix(name, comm) {
		return len(comm) >= min(commBytes-3, len(name)) // a character may have been cut
	}
	begin, end, ok := strings.Cut(comm, "..")
	return ok && strings.HasPrefix(name, begin) && strings.HasSuffix(name, end)
}

// readThreadNames reads what the VM calls its threads, if that is wanted. The worker that has p calls it.
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
	t.mu.Lock()
	for tid := range t.missing { // those that the VM does not know: they are not asked for again soon
		if _, ok := names[tid]; !ok && len(names) < 2*maxThreadNames {
			names[tid] = ""
		}
	}
	t.missing = nil
	t.mu.Unlock()
	t.known.Store(&names)
	t.read.Store(int64(now))
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
		own[id] = symbolize.CleanName(name)
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
		for tid := range *before {
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
