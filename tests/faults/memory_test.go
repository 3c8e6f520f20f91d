package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var memoryRows = []Row{
	{Fault: "slow readers of pages under a memory limit", Test: testMemory,
		Holds: "At 999 Hz with all kinds of events and a JVM every 1.5 s, the agent stays below 256 MiB for 20 " +
			"minutes on two overloaded CPUs. A page is at most 1 MiB, and all clients share it. " +
			"At most 4 requests wait for pages; the next one gets status 429. The Go heap stays below 70 % of the " +
			"cgroup's limit.",
		Elsewhere: []string{"agent/view/httpd.TestPagesAreSmall", "agent/view/httpd.TestWindowsAreSmall",
			"agent/view/httpd.TestPagesBusy", "agent/view/httpd.TestPagesOfSlowReaders",
			"cmd/vmprof-agent/self.TestCgroupLimit"}},
}

// A memoryGroup is a cgroup with a memory limit.
type memoryGroup struct{ dir, peak string }

// newMemoryGroup makes a memoryGroup, in either version of cgroups.
func newMemoryGroup(t *testing.T, limit int) memoryGroup {
	t.Helper()
	for _, v := range []struct{ parent, limit, peak string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.peak"},
	} {
		g := memoryGroup{dir: fmt.Sprintf("%s/vmprof-faults-%d", v.parent, os.Getpid())}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(g.dir) })
		g.peak = filepath.Join(g.dir, v.peak)
		// Not a new file: if version 1 is mounted, the directory of version 2 is an ordinary one.
		file, err := os.OpenFile(filepath.Join(g.dir, v.limit), os.O_WRONLY, 0)
		if err != nil {
			os.Remove(g.dir)
			continue
		}
		_, err = file.WriteString(strconv.Itoa(limit))
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		return g
	}
	needs.Missing(t, "no cgroup with a memory limit can be made")
	return memoryGroup{}
}

// used returns the peak memory use.
func (g memoryGroup) used(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(g.peak)
	if err != nil {
		t.Fatal(err)
	}
	peak, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

func testMemory(t *testing.T) {
	needs.Root(t, "sampling")
	jdk, err := jvm.Oldest()
	if errors.Is(err, jvm.ErrNoJDK) {
		needs.Missing(t, err)
	}
	const limit = 256 << 20
	group := newMemoryGroup(t, limit)
	// Before the agent is killed, so that the group is empty when it is removed.
	agent := startAgent(t, "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, group.dir,
		built.Path, "serve", "-F", "999", "-e", "cpu,calls,alloc,lock,safepoint,page-faults", "--listen=127.0.0.1:0")
	url := agent.address(t)

	var load sync.WaitGroup
	defer load.Wait()
	enough := make(chan struct{})
	stop := sync.OnceFunc(func() { close(enough) })
	defer stop()
	load.Go(func() { churn(t, jdk, enough) })
	wait.For(t, 5*time.Minute, "there is a page", func() bool {
		_, body := profiler.Get(t, url+"/ui/flamegraph")
		return !strings.Contains(body, "Nothing to show yet")
	})
	length := time.Duration(times(8, 20*60)) * time.Second // from the first page on, however long that took
	end := time.Now().Add(length)
	time.AfterFunc(length, stop)
	var largest atomic.Int64
	for range times(20, 100) {
		load.Go(func() {
			for time.Now().Before(end) {
				size := readSlowly(strings.TrimPrefix(url, "http://"), end)
				for old := largest.Load(); size > old && !largest.CompareAndSwap(old, size); old = largest.Load() {
				}
			}
		})
	}
	if !refusesSome(url) {
		t.Error("no request was answered with 429")
	}
	load.Wait()
	if status, _ := profiler.Get(t, url+"/-/healthy"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	const header = 2 << 10 // bytes of an answer's header, at most
	if n := largest.Load(); n > 1<<20+header || n == 0 {
		t.Errorf("the largest page has %d bytes", n)
	}
	peak := group.used(t)
	t.Logf("after %v: peak %d MiB, largest page %d bytes", length, peak>>20, largest.Load())
	if peak >= limit {
		t.Errorf("%d bytes of memory were used: the limit was reached", peak)
	}
}

// churn starts a JVM every 1.5 s, which lives for some seconds, until there were enough.
func churn(t *testing.T, jdk jvm.JDK, enough <-chan struct{}) {
	sources, err := filepath.Glob("../suite/java/suite/*.java")
	if err != nil || len(sources) == 0 {
		t.Errorf("no sources to compile: %v", err)
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for out := t.TempDir(); ; {
		select {
		case <-enough:
			return
		case <-time.After(1500 * time.Millisecond):
		}
		// What it finds wrong with the sources, which lack libraries, is no matter.
		// One that takes long is killed: on a busy machine they must not pile up.
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		compile := exec.CommandContext(ctx, filepath.Join(jdk.Home, "bin/javac"),
			append([]string{"-J-Xmx200m", "-proc:none", "-implicit:none", "-d", out}, sources...)...)
		running.Go(func() {
			defer cancel()
			compile.Run()
		})
	}
}

// readSlowly asks for a page and reads it in small pieces. It returns how many bytes it got.
func readSlowly(address string, end time.Time) (size int64) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(8 << 10)
	conn.SetDeadline(end)
	pages := []string{"/ui/flamegraph", "/ui/top", "/ui/peek?f=java", "/ui/flamegraph?si=samples",
		fmt.Sprintf("/ui/flamegraph?f=%d", rand.IntN(1000))}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", pages[rand.IntN(len(pages))])
	for piece := make([]byte, 8<<10); ; time.Sleep(50 * time.Millisecond) {
		n, err := io.ReadFull(conn, piece)
		if size += int64(n); err != nil {
			return size
		}
	}
}

// refusesSome asks for many pages at once, until one is refused.
func refusesSome(url string) bool {
	var refused atomic.Bool
	for range 20 {
		var asking sync.WaitGroup
		for range 16 {
			asking.Go(func() {
				response, err := http.Get(fmt.Sprintf("%s/ui/peek?f=%d", url, rand.IntN(1e9)))
				if err != nil {
					return // on a busy machine an answer may take longer than the server waits
				}
				response.Body.Close()
				if response.StatusCode == http.StatusTooManyRequests {
					refused.Store(true)
				}
			})
		}
		asking.Wait()
		if refused.Load() {
			return true
		}
	}
	return false
}
