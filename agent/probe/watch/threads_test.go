package watch

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

func TestThreads(t *testing.T) {
	var r runners
	for _, step := range []struct {
		name string
		used map[int]uint64
		want []int
	}{
		{"seen first: by all that they did", map[int]uint64{10: 5, 11: 900, 12: 0}, []int{11, 10}},
		{"by what they did since", map[int]uint64{10: 6, 11: 900, 12: 400}, []int{12, 10}},
		{"a new one, and one that is gone", map[int]uint64{10: 6, 12: 401, 13: 7}, []int{13, 12}},
		{"an id that is used again", map[int]uint64{10: 6, 12: 401, 13: 3}, []int{10}},
		{"alike: by id", map[int]uint64{10: 7, 12: 402, 13: 4}, []int{10, 12, 13}},
	} {
		var tids []int
		for tid := 10; tid < 20; tid++ {
			if _, ok := step.used[tid]; ok {
				tids = append(tids, tid)
			}
		}
		tids = append(tids, 99) // ends between the list and the look at it
		r.update(tids, func(tid int) (uint64, error) {
			ns, ok := step.used[tid]
			if !ok {
				return 0, errors.New("gone")
			}
			return ns, nil
		})
		r.rank(10)
		if got := r.order; !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

func TestThreadTable(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var table threadTable
	self, err := proc.DefaultRoot.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	first, err := table.running(self)
	if err != nil || !slices.Contains(first, unix.Gettid()) {
		t.Errorf("running: %v, %v: want %d among them", first, err, unix.Gettid())
	}
	if _, err := table.running(proc.Identity{PID: 1 << 23}); !errors.Is(err, proc.ErrGone) {
		t.Errorf("a process that does not exist: %v", err)
	}
	for start := range uint64(3 * maxTables) {
		_, _ = table.running(proc.Identity{PID: self.PID, Start: start * uint64(time.Second)})
	}
	if len(table.processes) > maxTables {
		t.Errorf("%d processes are kept", len(table.processes))
	}
}
