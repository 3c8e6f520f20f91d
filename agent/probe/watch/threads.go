package watch

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// Bounds on what is read to learn which threads run.
const (
	refresh    = 500 * time.Millisecond
	maxThreads = 4096 // threads of a process, 5 to 10 us each; the others are not watched
	maxTables  = 64   // processes; the one that was not asked for longest is forgotten
)

// Threads are the threads of a process, by what they ran between the last two readings. The zero
// value is of none.
type Threads struct {
	used   map[int]uint64 // ns of CPU by thread, when they were read last
	lately map[int]uint64 // ns between the last two readings, of those that ran
}

// refresh reads how long all threads ran. A process that is gone keeps what was read before.
func (t *Threads) refresh(root proc.Root, id proc.Identity) error {
	tids, err := root.Threads(id.PID)
	if err != nil {
		return err
	}
	if err := root.Check(id); err != nil {
		return err
	}
	t.update(tids[:min(len(tids), maxThreads)], func(tid int) (uint64,
		error) {
		return root.ThreadCPUTime(id.PID, tid)
	})
	return nil
}

// update takes over what was read. A thread that is seen for the first time counts as if all that
// it ever did was done lately.
func (t *Threads) update(tids []int, cpuTime func(tid int) (uint64, error)) {
	before := t.used
	t.used, t.lately = make(map[int]uint64, len(tids)), map[int]uint64{}
	for _, tid := range tids {
		ns, err := cpuTime(tid)
		if err != nil {
			continue // it ended
		}
		t.used[tid] = ns
		if did := ns - min(before[tid], ns); did > 0 { // a thread id that is used again begins from 0
			t.lately[tid] = did
		}
	}
}

// Busiest returns the n threads that ran most lately, the busiest first.
func (t *Threads) Busiest(n int) []int {
	tids := slices.SortedFunc(maps.Keys(t.lately), func(a, b int) int {
		return cmp.Or(cmp.Compare(t.lately[b], t.lately[a]), cmp.Compare(a, b))
	})
	return tids[:min(n, len(tids))]
}

// Draw chooses one of the threads that are wanted at random: the more it ran lately, the likelier.
// False if none did.
func (t *Threads) Draw(wanted func(tid int) bool) (tid int, ok bool) {
	all := slices.DeleteFunc(t.Busiest(len(t.lately)), func(tid int) bool { return !wanted(tid) })
	var sum uint64
	for _, tid := range all {
		sum += t.lately[tid]
	}
	if sum == 0 {
		return 0, false
	}
	at := rand.Uint64N(sum)
	for _, tid := range all {
		if at < t.lately[tid] {
			return tid, true
		}
		at -= t.lately[tid]
	}
	return 0, false
}

// A threadTable knows which threads of processes run. A JVM has dozens that wait all the time:
// breakpoints in them would cost descriptors, and the agent 60 us each.
type threadTable struct {
	root proc.Root

	mu        sync.Mutex
	processes map[uint64]*runners // by pid and start
}

// runners are the threads of one process.
type runners struct {
	Threads
	read  time.Time
	order []int // those that ran lately, the busiest first
}

// running returns the threads that ran lately, the busiest first. If none ran, it is the process's
// first thread.
func (t *threadTable) running(id proc.Identity) ([]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := uint64(id.PID)<<40 ^ id.Ticks()
	r := t.processes[key]
	if r == nil {
		r = &runners{}
		t.remember(key, r)
	}
	if time.Since(r.read) < refresh {
		return r.order, nil
	}
	tids, err := t.root.Threads(id.PID)
	if err != nil {
		return nil, err
	}
	r.update(tids[:min(len(tids), maxThreads)], func(tid int) (uint64,
		error) {
		return t.root.ThreadCPUTime(id.PID, tid)
	})
	r.rank(id.PID)
	return r.order, nil
}

// rank puts the threads in order, after they were read.
func (r *runners) rank(pid int) {
	if r.order = r.Busiest(len(r.lately)); len(r.order) == 0 {
		r.order = []int{pid}
	}
	r.read = time.Now()
}

func (t *threadTable) remember(key uint64, r *runners) {
	if t.processes == nil {
		t.processes = map[uint64]*runners{}
	}
	for len(t.processes) >= maxTables {
		var oldest uint64
		for k, o := range t.processes {
			if first := t.processes[oldest]; first == nil || o.read.Before(first.read) {
				oldest = k
			}
		}
		delete(t.processes, oldest)
	}
	t.processes[key] = r
}
