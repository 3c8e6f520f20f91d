// Package profiler runs profilers beside a guest: the built vmprof-agent, and perf to compare it
// with.
//
//	agent, err := profiler.Build(ctx, dir)
//	recording, err := agent.Record(ctx, profiler.Options{PID: guest.PID(), Frequency: 999, Duration: 5 * time.Second})
package profiler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// Options say what a profiler is to do.
type Options struct {
	PID       int           // process ID of the target; 0: the whole machine
	Frequency int           // samples a second; 0: the agent's choice
	Duration  time.Duration // 0: until it is stopped
	Extra     []string      // further arguments for the agent
}

// A Run is a profiler at work. Its methods are for one goroutine at a time.
type Run struct {
	process *exec.Cmd
	output  output     // standard output and error
	ended   chan error // what Wait gave, once
}

// An output is what a process has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a profiler that ends when ctx is done, as if it were interrupted from the keyboard.
func start(ctx context.Context, path string, args ...string) (*Run, error) {
	r := &Run{process: exec.CommandContext(ctx, path, args...), ended: make(chan error, 1)}
	r.process.Stdout, r.process.Stderr = &r.output, &r.output
	// Ctrl-C is for who started it, and may look at it before it ends
	r.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.process.Cancel = func() error { return r.process.Process.Signal(os.Interrupt) }
	r.process.WaitDelay = time.Minute
	if err := r.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	go func() { r.ended <- r.process.Wait() }()
	return r, nil
}

// await waits until something is true, unless the profiler ends before: reading the method map of a
// large guest takes a second, and on a busy machine a minute.
func (r *Run) await(what string, is func() bool) error {
	err := wait.Until(context.Background(), wait.Long, what, func() (bool, error) {
		select {
		case err := <-r.ended:
			r.ended <- err
			return false, fmt.Errorf("profiler ended before this: %s: %w", what, err)
		default:
		}
		return is(), nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, r.output.String())
	}
	return nil
}

// WaitSampling waits until the profiler samples: until it has a perf event open on every CPU, and a
// moment longer for what it does next. It asks the kernel rather than the profiler, so that it
// serves for any.
func (r *Run) WaitSampling() error {
	if err := r.await("the profiler samples", r.samples); err != nil {
		return err
	}
	time.Sleep(settle)
	return nil
}

// settle is that moment. It is a length of time, as nothing tells for any profiler when it is done
// with what it does once, which is not to be measured with what it does all the time.
const settle = 500 * time.Millisecond

// samples says that the process holds perf events.
func (r *Run) samples() bool { return r.holds("perf_event") > 0 }

// holds returns how many file descriptors the process has whose targets contain one of the words.
func (r *Run) holds(words ...string) (n int) {
	dir := fmt.Sprintf("/proc/%d/fd", r.process.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err == nil && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(target, word) }) {
			n++
		}
	}
	return n
}

// waitFor waits until the profiler has printed so many lines with each of these texts.
func (r *Run) waitFor(lines map[string]int) error {
	for line, n := range lines {
		if err := r.await(fmt.Sprintf("the profiler has printed %q", line), func() bool {
			return strings.Count(r.output.String(), line) >= n
		}); err != nil {
			return err
		}
	}
	return nil
}

// WaitAttached waits until the profiler has attached what it attaches to a guest: until it holds
// perf events or probes, and no more of them than a second before. So it serves for a recording of
// events, which may do without perf events, and whose probes come one after the other.
func (r *Run) WaitAttached() error {
	const settle = time.Second
	held, since := 0, time.Now()
	return r.await("the profiler has attached what it attaches", func() bool {
		if now := r.holds("perf_event", "bpf_link"); now != held {
			held, since = now, time.Now()
		}
		return held > 0 && time.Since(since) > settle
	})
}

// A Usage is what a profiler has used so far.
type Usage struct {
	CPU time.Duration // in user and kernel mode
	RSS uint64        // the most it ever had, in bytes
}

// Usage returns what the profiler has used. The kernel counts CPU in ticks of 10 ms.
func (r *Run) Usage() (Usage, error) {
	proc, err := procfs.NewProc(r.process.Process.Pid)
	if err != nil {
		return Usage{}, fmt.Errorf("look at the profiler: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return Usage{}, fmt.Errorf("read the profiler's CPU time: %w", err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return Usage{}, fmt.Errorf("read the profiler's memory: %w", err)
	}
	return Usage{CPU: time.Duration(stat.CPUTime() * float64(time.Second)), RSS: status.VmHWM}, nil
}

// PID returns the profiler's process id.
func (r *Run) PID() int { return r.process.Process.Pid }

// Signal sends the profiler a signal.
func (r *Run) Signal(signal syscall.Signal) error { return r.process.Process.Signal(signal) }

// Wait waits for the profiler to end, and returns what it printed.
func (r *Run) Wait() (output string, err error) {
	err = <-r.ended
	r.ended <- err
	return r.output.String(), err
}

// Interrupt ends the profiler as Ctrl-C does, and waits for it.
func (r *Run) Interrupt() (output string, err error) {
	if err := r.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return "", fmt.Errorf("interrupt the profiler: %w", err)
	}
	return r.Wait()
}

// TotalCPU returns the CPU time of a profiler that has ended.
func (r *Run) TotalCPU() time.Duration {
	return r.process.ProcessState.UserTime() + r.process.ProcessState.SystemTime()
}
