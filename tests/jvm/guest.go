package jvm

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Command is a guest to start.
type Command struct {
	JDK       JDK
	Flags     []string // for the JVM
	Classpath []string
	Main      string // class
	Args      []string
	Dirs      []string // further directories that must be visible to a JDK with a root of its own, at the same paths
}

// A Guest is a running JVM or other program that printed "ready pid N" and executes orders: lines
// on its standard input, each answered by lines of which "done" is the last. It ends when its
// standard input is closed, so that it does not outlive the process that started it. Only one
// goroutine at a time may use its methods.
type Guest struct {
	process *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	errors  tail
	pid     int
	ended   func() error // waits for the process, and reports how it ended
}

// Start starts a guest and waits until it is ready. The guest is killed when ctx is done.
func Start(ctx context.Context, c Command) (*Guest, error) {
	process, err := Process(ctx, c)
	if err != nil {
		return nil, err
	}
	return StartProcess(process, c.Main)
}

// StartProcess starts a guest of that name, which need not be a JVM, and waits until it is ready.
func StartProcess(process *exec.Cmd, name string) (*Guest, error) {
	g := &Guest{process: process}
	g.process.Stderr = &g.errors

	orders, err := g.process.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open the guest's input: %w", err)
	}
	answers, err := g.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open the guest's output: %w", err)
	}
	g.orders, g.answers = orders, bufio.NewScanner(answers)
	g.ended = sync.OnceValue(g.process.Wait)
	if err := g.process.Start(); err != nil {
		return nil, fmt.Errorf("start guest: %w", err)
	}
	for {
		line, err := g.line()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("wait for %s to be ready: %w", name, err), g.Close())
		}
		pid, ready := strings.CutPrefix(line, "ready pid ")
		if !ready {
			continue // the JVM itself may print something before
		}
		if g.pid, err = strconv.Atoi(pid); err != nil {
			return nil, errors.Join(fmt.Errorf("guest's pid: %w", err), g.Close())
		}
		return g, nil
	}
}

// PID returns the guest's process id.
func (g *Guest) PID() int { return g.pid }

// patience is for an order: the longest take a minute.
const patience = 10 * time.Minute

// Order sends an order to the guest, and returns its answer without the last line. A guest that
// does not answer is killed. If it is a JVM, it prints its threads before.
func (g *Guest) Order(order string) ([]string, error) {
	quit := time.AfterFunc(patience, func() { _ = g.process.Process.Signal(unix.SIGQUIT) })
	kill := time.AfterFunc(patience+10*time.Second, func() { _ = g.Kill() })
	defer quit.Stop()
	defer kill.Stop()
	if _, err := io.WriteString(g.orders, order+"\n"); err != nil {
		return nil, fmt.Errorf("order %q: %w\n%s", order, err, g.errors.String())
	}
	var answer []string
	for {
		line, err := g.line()
		if err != nil {
			return nil, fmt.Errorf("order %q: %w, after %q", order, err, answer)
		}
		if line == "done" {
			return answer, nil
		}
		answer = append(answer, line)
	}
}

func (g *Guest) line() (string, error) {
	if g.answers.Scan() {
		return g.answers.Text(), nil
	}
	g.orders.Close() // this ends the guest, if it has not ended
	return "", fmt.Errorf("guest ended: %w\n%s", cmp.Or(g.answers.Err(), g.ended(), io.ErrUnexpectedEOF),
		g.errors.String())
}

// CPUTime returns the CPU time that the guest has used, in user and kernel mode, of all present and
// past threads.
func (g *Guest) CPUTime() (time.Duration, error) { return CPUTime(g.pid) }

// CPUTime returns the CPU time that a process has used, in user and kernel mode, of all present and
// past threads.
func CPUTime(pid int) (time.Duration, error) {
	const cpuClockSched = 2 // CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h: user and system time
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &now); err != nil {
		return 0, fmt.Errorf("read the CPU clock of pid %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}

// Kill ends the guest as a crash would.
func (g *Guest) Kill() error { return g.process.Process.Kill() }

// Close ends the guest, and waits for it.
func (g *Guest) Close() error {
	g.orders.Close()
	for g.answers.Scan() { // a full pipe would keep it from ending
	}
	if err := g.ended(); err != nil {
		return fmt.Errorf("guest: %w\n%s", err, g.errors.String())
	}
	return nil
}

// A tail keeps the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

// tailBytes is enough for a Java stack trace or a JVM's complaint about its flags.
const tailBytes = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	if excess := len(t.bytes) - tailBytes; excess > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[excess:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}
