package listener

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// Bounds on what is read to learn which threads run.
const (
	refresh    = 500 * time.Millisecond
	maxThreads = 4096 // of a process, some 5 us each; the others are not listened to
	maxTables  = 64   // processes; the one that was not asked for longest is forgotten
)

// A threadTable knows which threads of processes run. A JVM has dozens that wait all the time: breakpoints in them would
// cost descriptors, and the agent 60 us each.
type threadTable struct {
	root proc.Root

	mu        sync.Mutex
	processes map[uint64]*runners // by pid and start
}

// runners are the threads of one process.
type runners struct {
	id    proc.Identity
	read  time.Time
	used  map[int]uint64 // ns of CPU by thread, when it was read last
	order []int          // those that ran in between, the busiest first
}

// running returns the threads that ran lately, the busiest first. Those that are seen for the first time count as if all
// that they ever did was done lately. If none ran, it is the process's first thread.
func (t *threadTable) running(id proc.Identity) ([]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := uint64(id.PID)<<40 ^ id.Ticks()
	r := t.processes[key]
	if r == nil {
		r = &runners{id: id}
		t.remember(key, r)
	}
	if time.Since(r.read) < refresh {
		return r.order, nil
	}
	tids, err := t.root.Threads(id.PID)
	if err != nil {
		return nil, err
	}
	r.update(tids[:min(len(tids), maxThreads)], t.root.ThreadCPUTime)
	return r.order, nil
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

// update ranks threads by what they did since the last time.
func (r *runners) update(tids []int, cpuTime func(pid, tid int) (uint64, error)) {
	before := r.used
	r.used = make(map[int]uint64, len(tids))
	r.order = nil
	did := map[int]uint64{}
	for _, tid := range tids {
		ns, err := cpuTime(r.id.PID, tid)
		if err != nil {
			continue // it ended
		}
		r.used[tid] = ns
		// A thread id that is used again begins from 0.
		if did[tid] = ns - min(before[tid], ns); did[tid] > 0 {
			r.order = append(r.order, tid)
		}
	}
	if r.order == nil {
		r.order = []int{r.id.PID}
	}
	slices.SortFunc(r.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(did[b], did[a]), cmp.Compare(a, b))
	})
	r.read = time.Now()
}
