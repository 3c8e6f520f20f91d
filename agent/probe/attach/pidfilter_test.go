package attach

import (
	"os"
	"sync"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A probe with this process's id is hit by a thread that is not the first one, or FiltersByPID says
// that it is not. One with another id is not.
func TestKernelPIDFilter(t *testing.T) {
	needs.Root(t, "attaching to probes")
	u := NewUprobes()
	if !u.Multi() {
		if u.FiltersByPID() {
			t.Error("single probes are said to be confined to a process")
		}
		t.Skip("the kernel has no uprobe.multi: 6.6 has")
	}
	for name, test := range map[string]struct {
		pid  int
		want uint64
	}{
		"all processes":   {0, 1},
		"another process": {os.Getppid(), 0},
	} {
		if hits, err := u.hitsOfSecondThread(test.pid); err != nil || hits != test.want {
			t.Errorf("%s: %d hits, error %v; want %d", name, hits, err, test.want)
		}
	}
	hits, err := u.hitsOfSecondThread(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a probe confined to this process is hit by its second thread: %t", hits == 1)
	if u.FiltersByPID() != (hits == 1) {
		t.Errorf("FiltersByPID is %t after %d hits", u.FiltersByPID(), hits)
	}
}

// Where a probe with a process id would see one thread only, it is attached for all processes.
func TestProbeForAllProcesses(t *testing.T) {
	needs.Root(t, "attaching to probes")
	u := NewUprobes()
	if !u.Multi() {
		t.Skip("the kernel has no uprobe.multi: 6.6 has")
	}
	was := u.FiltersByPID()
	triedPID.works = false
	t.Cleanup(func() { triedPID.works = was })
	program, hits := countHits(t, true)
	self, site, err := calledSite()
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	links, err := u.Attach(self, os.Getppid(), program, []Site{site})
	if err != nil {
		t.Fatal(err)
	}
	defer CloseLinks(links)
	var threads sync.WaitGroup
	for range 3 {
		threads.Go(func() { onSecondThread(called) })
	}
	threads.Wait()
	if n := hits(); n != 3 {
		t.Errorf("%d of 3 threads hit the probe", n)
	}
}
