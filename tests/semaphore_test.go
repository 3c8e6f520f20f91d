package tests

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// startPHP starts a PHP program that passes its probes, and ends it with the test.
func startPHP(t *testing.T, p php.Program) *php.Guest {
	t.Helper()
	needRoot(t)
	g, err := php.Start(t.Context(), p, php.Traced)
	if errors.Is(err, php.ErrMissing) {
		skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// keepBusy has the guest do rounds until the function that it returns is called, which returns all answers.
func keepBusy(t *testing.T, g *php.Guest, rounds int) (stop func() map[string]int) {
	t.Helper()
	quit, answers := make(chan struct{}), make(chan map[string]int, 1)
	go func() {
		got := map[string]int{}
		defer func() { answers <- got }()
		for {
			select {
			case <-quit:
				return
			default:
			}
			answer, err := g.Run(rounds)
			if err != nil {
				t.Error(err)
				return
			}
			got[answer]++
		}
	}()
	return func() map[string]int { close(quit); return <-answers }
}

// semaphoreArgs are the arguments of a recording of PHP's calls.
func semaphoreArgs(g *php.Guest, more ...string) []string {
	return append([]string{"record", "-e", "calls", "--engine=semaphore", "--allow-guest-writes", "-p", strconv.Itoa(g.PID())}, more...)
}

// TestSemaphoreRecord: every call gets its share, and neither the guest's results nor its semaphore are changed.
func TestSemaphoreRecord(t *testing.T) {
	g := startPHP(t, php.Known)
	truth, err := php.Truth()
	if err != nil {
		t.Fatal(err)
	}
	stop := keepBusy(t, g, 20000)
	path := output(t, "calls.pb.gz")
	mustSucceed(t, semaphoreArgs(g, "-d", "4s", "--stride=7", "--samples=32", "-o", path)...)
	if v, err := g.Semaphore(); v != 0 || err != nil {
		t.Errorf("semaphore is %d after the recording, %v", v, err)
	}
	if answers := stop(); len(answers) != 1 {
		t.Errorf("the program answered %v", answers)
	}
	got, total := phpCalls(t, path)
	var calls float64
	for _, n := range truth {
		calls += float64(n)
	}
	// Bursts of 32 samples over two rounds are draws of their own, or better. If a loaded machine left time for fifty of
	// them only, five standard deviations of 50 x 32 draws are 6 points for the largest share.
	for c, n := range truth {
		share, want := got[c]/total, float64(n)/calls
		if tolerance := 5 * math.Sqrt(want*(1-want)/(50*32)); math.Abs(share-want) > tolerance {
			t.Errorf("%v: share %.4f, want %.4f within %.4f", c, share, want, tolerance)
		}
	}
}

// phpCalls reads the calls that the semaphore engine sampled out of a recording.
func phpCalls(t *testing.T, path string) (map[php.Call]float64, float64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	value := -1
	for i, kind := range p.SampleType {
		if kind.Type == "calls" {
			value = i
		}
	}
	if value < 0 {
		t.Fatalf("no calls in %s", path)
	}
	calls, total := map[php.Call]float64{}, 0.0
	for _, s := range p.Sample {
		if len(s.Label["engine"]) != 1 || s.Label["engine"][0] != "semaphore" || len(s.Location) != 2 {
			continue
		}
		callee, caller := s.Location[0].Line[0], s.Location[1].Line[0]
		c := php.Call{Caller: caller.Function.Name, Callee: callee.Function.Name, Line: int(caller.Line)}
		calls[c] += float64(s.Value[value])
		total += float64(s.Value[value])
	}
	if total == 0 {
		t.Fatalf("no calls of PHP in %s", path)
	}
	return calls, total
}

// TestSemaphoreNotAllowed: without the flag the error names it.
func TestSemaphoreNotAllowed(t *testing.T) {
	g := startPHP(t, php.Known)
	got := agent(t, "record", "-e", "calls", "--engine=semaphore", "-p", strconv.Itoa(g.PID()), "-d", "1s", "-o", output(t, "calls.pb.gz"))
	if got.code == 0 || !strings.Contains(got.stderr, "--allow-guest-writes") {
		t.Errorf("ended with %d:\n%s", got.code, got.stderr)
	}
	if v, err := g.Semaphore(); v != 0 || err != nil {
		t.Errorf("semaphore is %d, %v", v, err)
	}
}

// TestSemaphoreKilled: an agent that is killed in the middle of bursts leaves no semaphore and no guard behind.
func TestSemaphoreKilled(t *testing.T) {
	g := startPHP(t, php.Known)
	stop := keepBusy(t, g, 20000)
	defer stop()
	for range 3 {
		// Bursts of this size follow each other so closely that the semaphore is set most of the time.
		record := exec.Command(built.Path, semaphoreArgs(g, "-d", "60s", "-F", "999", "--stride=31", "--samples=128", "-o", output(t, "calls.pb.gz"))...)
		if err := record.Start(); err != nil {
			t.Fatal(err)
		}
		set := func() bool { v, err := g.Semaphore(); return err == nil && v == 1 }
		eventually(t, "the semaphore is set", set)
		guard := childOf(t, record.Process.Pid)
		record.Process.Signal(unix.SIGKILL)
		record.Wait()
		eventually(t, "the guard has ended", func() bool { return ended(guard) })
		for range 10 {
			if set() {
				t.Fatal("the semaphore is set after the agent was killed")
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// childOf returns the one child of a process.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	pids, err := proc.DefaultRoot.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if st, err := proc.DefaultRoot.Stat(pid); err == nil && st.PPID == parent {
			return pid
		}
	}
	t.Fatalf("process %d has no child", parent)
	return 0
}

// ended reports whether a process is gone, or only waits for whoever inherited it.
func ended(pid int) bool {
	st, err := proc.DefaultRoot.Stat(pid)
	return err != nil || st.Zombie()
}
