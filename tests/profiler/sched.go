package profiler

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A SchedRun is a perf that records every switch and wakeup of the machine: perf sched.
type SchedRun struct {
	*Run
	dir string
}

// A ThreadTime is what perf sched says of one thread.
type ThreadTime struct {
	Name     string
	TID, PID int
	Wait     time.Duration // off the CPU
	Delay    time.Duration // part of Wait on a run queue, after it was woken
	Run      time.Duration // on a CPU
}

// StartSched starts perf sched record.
func StartSched(ctx context.Context) (*SchedRun, error) {
	dir, err := os.MkdirTemp("", "vmprof-sched-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for perf: %w", err)
	}
	run, err := start(ctx, "perf", "sched", "record", "-o", filepath.Join(dir, "sched.data"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("install linux-perf: %w", err), os.RemoveAll(dir))
	}
	return &SchedRun{Run: run, dir: dir}, nil
}

// Stop ends perf, and returns the time of the threads of a process.
func (r *SchedRun) Stop(ctx context.Context, pid int) (list []ThreadTime, err error) {
	defer os.RemoveAll(r.dir)
	// perf ends itself by the signal that it was interrupted with, after it has written everything.
	output, ended := r.Interrupt()
	path := filepath.Join(r.dir, "sched.data")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("perf sched record: %w\n%s", errors.Join(ended, err), output)
	}
	hist := exec.CommandContext(ctx, "perf", "sched", "timehist", "-i", path, "--force")
	var complaint strings.Builder
	hist.Stderr = &complaint
	lines, err := hist.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open the output of perf: %w", err)
	}
	if err := hist.Start(); err != nil {
		return nil, fmt.Errorf("start perf sched timehist: %w", err)
	}
	list, malformed := parseTimehist(lines, pid)
	if malformed != nil {
		hist.Process.Kill() // it may be about to write more; Wait reports how it ended
	}
	if err := hist.Wait(); err != nil || malformed != nil {
		return nil, fmt.Errorf("perf sched timehist: %w\n%s", errors.Join(malformed, err), complaint.String())
	}
	return list, nil
}

// timehist is a line of perf sched timehist: when a thread left its CPU, how long it had waited and
// been on a run queue before it came to it, and how long it ran. Threads are written as
// NAME[TID/PID], or NAME[TID] if both are the same.
var timehist = regexp.MustCompile(`^\s*[0-9.]+\s+\[[0-9]+\]\s+(.*)\[([0-9]+)(?:/([0-9]+))?\]\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)`)

// parseTimehist adds up the output of perf sched timehist by thread.
func parseTimehist(output io.Reader, pid int) ([]ThreadTime, error) {
	threads := map[int]*ThreadTime{}
	var order []int
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		m := timehist.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		var n [2]int
		for i, text := range []string{m[2], m[3]} {
			if text == "" {
				text = m[2]
			}
			var err error
			if n[i], err = strconv.Atoi(text); err != nil {
				return nil, err
			}
		}
		if n[1] != pid {
			continue
		}
		t := threads[n[0]]
		if t == nil {
			t = &ThreadTime{TID: n[0], PID: n[1]}
			threads[n[0]], order = t, append(order, n[0])
		}
		t.Name = m[1]
		for i, sum := range []*time.Duration{&t.Wait, &t.Delay, &t.Run} {
			millis, err := strconv.ParseFloat(m[4+i], 64)
			if err != nil {
				return nil, err
			}
			*sum += time.Duration(millis * float64(time.Millisecond))
		}
	}
	list := make([]ThreadTime, 0, len(order))
	for _, tid := range order {
		list = append(list, *threads[tid])
	}
	return list, lines.Err()
}
