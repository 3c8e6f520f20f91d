// Package switching runs programs whose threads do little but switch.
//
//	guest, err := switching.StartPairs(ctx)
//	defer guest.Close()
//	err = guest.Order("100000 0")
package switching

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed c/guest.c
var source []byte

// A Guest does what it is ordered to, line by line.
type Guest struct {
	cmd   *exec.Cmd
	dir   string // directory of its files, or ""
	in    io.WriteCloser
	out   *bufio.Scanner
	Pairs int // pairs of threads, one for each CPU; 0 for messaging
}

// StartPairs starts pairs of threads that hand a byte to each other. An order is how many
// hand-overs each pair makes, and how many rounds of a loop a thread works before each. The guest
// ends when ctx does.
func StartPairs(ctx context.Context) (g *Guest, err error) {
	dir, err := os.MkdirTemp("", "switching-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for a guest: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	program, file := filepath.Join(dir, "pairs"), filepath.Join(dir, "guest.c")
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return nil, fmt.Errorf("write a guest: %w", err)
	}
	build := exec.CommandContext(ctx, "gcc", "-D_GNU_SOURCE", "-O1", "-Wall", "-Werror", "-pthread", "-o", program,
		file)
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile a guest: %w\n%s", err, output)
	}
	if g, err = start(exec.CommandContext(ctx, program)); err != nil {
		return nil, err
	}
	g.dir = dir
	if !g.out.Scan() {
		return nil, errors.Join(errGone, g.Close())
	}
	if _, err := fmt.Sscanf(g.out.Text(), "ready %d", &g.Pairs); err != nil {
		return nil, errors.Join(fmt.Errorf("a guest begins with %q: %w", g.out.Text(), err), g.Close())
	}
	return g, nil
}

// StartMessaging starts a shell that runs perf bench sched messaging: 20 senders and 20 receivers,
// each of them a process. An order is how many messages a sender sends to each receiver.
func StartMessaging(ctx context.Context) (*Guest, error) {
	const script = `while read n; do perf bench sched messaging -g 1 -l "$n" >/dev/null || exit 1; echo done; done`
	return start(exec.CommandContext(ctx, "sh", "-c", script))
}

func start(cmd *exec.Cmd) (*Guest, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a guest: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a guest: %w", err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a guest: %w", err)
	}
	return &Guest{cmd: cmd, in: in, out: bufio.NewScanner(out)}, nil
}

// errGone says that a guest ended before its answer.
var errGone = errors.New("the guest has ended")

// PID is the guest's process.
func (g *Guest) PID() int { return g.cmd.Process.Pid }

// Order has the guest work, and waits until it is done.
func (g *Guest) Order(order string) error {
	if _, err := fmt.Fprintln(g.in, order); err != nil {
		return fmt.Errorf("order %q: %w", order, err)
	}
	if !g.out.Scan() || g.out.Text() != "done" {
		return fmt.Errorf("order %q: %w", order, errors.Join(errGone, g.out.Err()))
	}
	return nil
}

// CPUTime is what the guest has used, with its children that have ended.
func (g *Guest) CPUTime() (used time.Duration, err error) {
	const (
		first = 11 // index of the first of these fields behind the name: utime, stime, cutime, cstime
		tick  = time.Second / 100
	)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.PID()))
	if err != nil {
		return 0, fmt.Errorf("read a guest's CPU time: %w", err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < first+4 {
		return 0, fmt.Errorf("read a guest's CPU time: %d fields", len(fields))
	}
	for _, field := range fields[first : first+4] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("read a guest's CPU time: %w", err)
		}
		used += time.Duration(n) * tick
	}
	return used, nil
}

// Close ends the guest.
func (g *Guest) Close() error {
	err := errors.Join(g.in.Close(), g.cmd.Wait())
	if g.dir != "" {
		err = errors.Join(err, os.RemoveAll(g.dir))
	}
	return err
}
