//go:build linux

package semaphore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// victimVerb makes the test program an agent that is to be killed.
const victimVerb = "victim"

// victim samples a PHP process until it is killed. With how "hold" the semaphore is set all the time, with "burst"
// now and then. It prints its guard's pid when it is at it.
func victim(how, pid string) error {
	target, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	objects, err := bpf.Load(bpf.Options{})
	if err != nil {
		return err
	}
	rate := calls.Rate{Hz: 997, Burst: calls.Burst{Stride: 31, Samples: 128}}
	e, err := Try(Options{AllowGuestWrites: true, Objects: objects, Rate: rate})
	if err != nil {
		return err
	}
	if found, err := e.Look(context.Background(), target); err != nil || !found {
		return fmt.Errorf("found: %v, %w", found, err)
	}
	if how == "hold" {
		if _, err := e.Exact(target); err != nil {
			return err
		}
	}
	fmt.Println(e.guard.cmd.Process.Pid)
	select {}
}

// startVictim returns the agent and the pid of its guard.
func startVictim(t *testing.T, how string, pid int) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", victimVerb, how, strconv.Itoa(pid))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the victim did not begin: %v", err)
	}
	guard, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, guard
}

// eventually waits for something that is due at once.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 500 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("still not so: %s", what)
}

// ended reports whether a process is gone, or only waits for its parent.
func ended(pid int) bool {
	st, err := proc.DefaultRoot.Stat(pid)
	return err != nil || st.Zombie()
}

// needRoot skips a test that loads programs in another process, where need cannot see why it fails.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		need(t, errors.New("needs root"))
	}
}

// An agent that is killed leaves no semaphore set: its guard clears it, and ends itself.
func TestLiveAgentKilled(t *testing.T) {
	needRoot(t)
	g := start(t, php.Known, php.Traced)
	agent, guard := startVictim(t, "hold", g.PID())
	if v, err := semaphoreOf(g.PID()); err != nil || v != 1 {
		t.Fatalf("semaphore is %d while the agent lives, %v", v, err)
	}
	agent.Process.Signal(unix.SIGKILL)
	eventually(t, "guard has ended", func() bool { return ended(guard) })
	if v, err := semaphoreOf(g.PID()); err != nil || v != 0 {
		t.Errorf("semaphore is %d after the agent was killed, %v", v, err)
	}
}

// The same in the middle of bursts, wherever they are.
func TestLiveAgentKilledInBurst(t *testing.T) {
	needRoot(t)
	g := start(t, php.Known, php.Traced)
	var agent *exec.Cmd
	for i := range 3 {
		var guard int
		agent, guard = startVictim(t, "burst", g.PID())
		done := make(chan error, 1)
		go func() { _, err := g.Run(100_000); done <- err }()
		time.Sleep(time.Duration(50+37*i) * time.Millisecond)
		agent.Process.Signal(unix.SIGKILL)
		eventually(t, "guard has ended", func() bool { return ended(guard) })
		if v, err := semaphoreOf(g.PID()); err != nil || v != 0 {
			t.Errorf("semaphore is %d after the agent was killed, %v", v, err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Signals that a terminal or a service manager sends to both do not end the guard before its agent.
func TestLiveGuardIgnoresSignals(t *testing.T) {
	needRoot(t)
	g := start(t, php.Known, php.Traced)
	agent, guard := startVictim(t, "hold", g.PID())
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		for range 2 {
			unix.Kill(guard, s)
		}
	}
	agent.Process.Signal(unix.SIGTERM)
	eventually(t, "guard has ended", func() bool { return ended(guard) })
	if v, err := semaphoreOf(g.PID()); err != nil || v != 0 {
		t.Errorf("semaphore is %d, %v", v, err)
	}
}

// When the guard is killed, the agent clears, and says that it samples nothing any more.
func TestLiveGuardKilled(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	b := begin(t, calls.Rate{})
	b.look(g.PID())
	if _, err := b.Exact(g.PID()); err != nil {
		t.Fatal(err)
	}
	b.guard.cmd.Process.Kill()
	eventually(t, "semaphore is 0", func() bool { v, err := semaphoreOf(g.PID()); return err == nil && v == 0 })
	if err := b.Tune(calls.Rate{Hz: 1}); !errors.Is(err, errGuard) {
		t.Errorf("tuned without a guard: %v", err)
	}
	if len(b.Notes()) == 0 {
		t.Error("no note says that the guard is gone")
	}
	b.closing.Do(func() { b.stop(); <-b.kept; b.release() }) // its guard ended with an error: it was killed
}

// Agent and guard are killed at once: the next agent clears what they left.
func TestLiveBothKilled(t *testing.T) {
	needRoot(t)
	g := start(t, php.Known, php.Traced)
	agent, guard := startVictim(t, "hold", g.PID())
	agent.Process.Signal(unix.SIGSTOP)
	unix.Kill(guard, unix.SIGKILL)
	agent.Process.Signal(unix.SIGKILL)
	agent.Wait()
	if v, err := semaphoreOf(g.PID()); err != nil || v != 1 {
		t.Fatalf("semaphore is %d, %v: nothing to clear", v, err)
	}
	b := begin(t, calls.Rate{Hz: 1})
	b.look(g.PID())
	if v, err := semaphoreOf(g.PID()); err != nil || v != 0 {
		t.Errorf("semaphore is %d after an agent has looked, %v", v, err)
	}
}

// Children that inherit a set semaphore get rid of it at their first calls.
func TestLiveForks(t *testing.T) {
	g := start(t, php.Forks, php.Traced)
	b := begin(t, calls.Rate{Hz: 997, Burst: calls.Burst{Stride: 31, Samples: 128}})
	b.look(g.PID())
	if _, err := b.Exact(g.PID()); err != nil { // now every child inherits it
		t.Fatal(err)
	}
	const forks = 10
	got := run(t, g, forks)
	if want := run(t, start(t, php.Forks), forks); got != want {
		t.Errorf("the program answered %q, %q without the engine", got, want)
	}
	counts, err := b.objects.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	// Each child makes 200,001 calls. Without being cleared all of them would be hits.
	if strays := counts[bpf.CallHitsRefused]; strays == 0 || strays > forks*200_000/2 {
		t.Errorf("%d calls of children with an inherited semaphore", strays)
	}
}

// A process that ends is forgotten, and its descriptors are given back.
func TestLiveForget(t *testing.T) {
	b := begin(t, calls.Rate{Hz: 1})
	after := map[int]int{} // descriptors
	for i := range 3 {
		g, err := php.Start(t.Context(), php.Known, php.Traced)
		need(t, err)
		b.look(g.PID())
		g.Close()
		for _, g := range b.all() {
			b.check(t.Context(), g)
		}
		if n := len(b.all()); n != 0 {
			t.Errorf("%d guests are left", n)
		}
		after[i] = descriptors(t)
	}
	if after[2] != after[0] { // the first look attached to the file, which stays
		t.Errorf("descriptors after each of three guests: %v", after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
