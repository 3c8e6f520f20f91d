package growth

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
	"time"
)

//go:embed guest/turns.c
var turnsSource string

// slice is for how long a process works in its turn.
const slice = 500 * time.Microsecond

// Turns are processes that work in turn, so that all together they use a tenth of a CPU.
type Turns struct {
	PIDs []int

	process *exec.Cmd
	input   io.Closer
	dir     string
}

// StartTurns starts that many processes. The caller closes them.
func StartTurns(ctx context.Context, count int) (t *Turns, err error) {
	t = &Turns{}
	if t.dir, err = os.MkdirTemp("", "growth-"); err != nil {
		return nil, err
	}
	fail := func(err error) (*Turns, error) { return nil, errors.Join(err, t.Close()) }
	source, binary := filepath.Join(t.dir, "turns.c"), filepath.Join(t.dir, "turns")
	if err := os.WriteFile(source, []byte(turnsSource), 0o600); err != nil {
		return fail(err)
	}
	if out, err := exec.CommandContext(ctx, "gcc", "-std=gnu11", "-O2", "-fno-omit-frame-pointer", "-o", binary,
		source).CombinedOutput(); err != nil {
		return fail(fmt.Errorf("compile processes to record (install gcc): %w\n%s", err, out))
	}
	process := exec.CommandContext(ctx, binary, strconv.Itoa(count), strconv.FormatInt(slice.Microseconds(), 10))
	if t.input, err = process.StdinPipe(); err != nil {
		return fail(err)
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	if err := process.Start(); err != nil {
		return fail(fmt.Errorf("start processes to record: %w", err))
	}
	t.process = process
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if lines.Text() == "ready" {
			return t, nil
		}
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			return fail(fmt.Errorf("a process's pid: %w", err))
		}
		t.PIDs = append(t.PIDs, pid)
	}
	return fail(fmt.Errorf("only %d of %d processes were started", len(t.PIDs), count))
}

// Close ends the processes.
func (t *Turns) Close() error {
	var errs []error
	if t.process != nil {
		errs = append(errs, t.input.Close(), t.process.Wait())
	}
	return errors.Join(append(errs, os.RemoveAll(t.dir))...)
}
