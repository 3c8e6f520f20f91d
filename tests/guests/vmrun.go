package guests

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// VMOptions are the options of the reference guest.
type VMOptions struct {
	Program string
	Threads int  // 0: as many as the program wants
	NoCheck bool // methods do not check whether they are sampled, so they never are
	Padded  bool // likewise, but with a NOP as long as the check in its place
	// Yields is how many times a second a timer wants each thread to yield: methods begin with the
	// VM's own yieldpoint, which the agent shares.
	Yields int
	Shared bool   // likewise, even if the timer never does
	Exact  bool   // count every call while running, instead of multiplying the calls of an iteration
	Socket string // socket of the agent, empty for the usual one
}

// VMPrograms returns the names of the programs, as vm/programs.c has them.
func VMPrograms() []string {
	return []string{"skewed", "phased", "recursive", "virtual", "threaded", "flat", "adversary"}
}

// A VMRun is a running reference guest, which waits for orders. One goroutine may use it.
type VMRun struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers *bufio.Scanner
	stderr  strings.Builder
}

// A Segment is the result of one order to run.
type Segment struct {
	Iterations uint64 // sum over all threads
	CPU, Wall  time.Duration
	Checksum   string // checksum of all results since the guest was started
}

// Start starts a guest. It ends when ctx is done.
func (v VM) Start(ctx context.Context, o VMOptions) (*VMRun, error) {
	args := []string{o.Program, "-"}
	if o.Threads > 0 {
		args = append(args, "-threads", strconv.Itoa(o.Threads))
	}
	if o.NoCheck {
		args = append(args, "-nocheck")
	}
	if o.Padded {
		args = append(args, "-nop")
	}
	if o.Shared || o.Yields > 0 {
		args = append(args, "-yield", strconv.Itoa(o.Yields))
	}
	if o.Exact {
		args = append(args, "-exact")
	}
	r := &VMRun{cmd: exec.CommandContext(ctx, v.Path, args...)}
	if o.Socket != "" {
		r.cmd.Env = append(os.Environ(), "VMPROF_SOCKET="+o.Socket)
	}
	r.cmd.Stderr = &r.stderr
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the reference guest: %w", err)
	}
	r.answers = bufio.NewScanner(out)
	if r.orders, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start the reference guest: %w", err)
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the reference guest: %w", err)
	}
	return r, nil
}

// Pid is the guest's process id.
func (r *VMRun) Pid() int { return r.cmd.Process.Pid }

// Run lets every thread do that many iterations.
func (r *VMRun) Run(iterations int) (Segment, error) {
	return r.segment(fmt.Sprintf("run %d", iterations))
}

// RunFor lets every thread do iterations for that long.
func (r *VMRun) RunFor(d time.Duration) (Segment, error) {
	return r.segment(fmt.Sprintf("seconds %g", d.Seconds()))
}

func (r *VMRun) segment(order string) (Segment, error) {
	_, last, err := r.order(order)
	if err != nil {
		return Segment{}, err
	}
	return parseSegment(last)
}

// Graph returns the exact call graph of everything that ran since the guest was started or Graph
// was last called.
func (r *VMRun) Graph() (*VMGraph, error) {
	lines, _, err := r.order("graph")
	if err != nil {
		return nil, err
	}
	return parseVMGraph(lines)
}

// ErrNoAgent says that a guest found no agent in time.
var ErrNoAgent = errors.New("no agent answers the guest")

// WaitForAgent waits until the guest is connected to an agent, for at most 10 s. Its threads are
// known to the agent once they have made a call after that.
func (r *VMRun) WaitForAgent() error {
	_, last, err := r.order("wait")
	if err == nil && last != "wait\t1" {
		err = ErrNoAgent
	}
	return err
}

// Recompile makes the guest compile its program again, at other addresses, and drop its old code.
func (r *VMRun) Recompile() error {
	_, _, err := r.order("recompile")
	return err
}

// Fork makes the guest create a child that does one iteration, and returns the child's output:
// "child", whether it was armed before and after it, and whether it was connected; then "child
// connected" if it got a connection of its own.
func (r *VMRun) Fork() ([]string, error) {
	lines, _, err := r.order("fork")
	return lines, err
}

// Yields returns how often the timer wanted a thread to yield, and how often one did.
func (r *VMRun) Yields() (wanted, done int, err error) {
	_, last, err := r.order("yields")
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(last, "yields\t%d\t%d", &wanted, &done); err != nil {
		return 0, 0, fmt.Errorf("answer %q: %w", last, err)
	}
	return wanted, done, nil
}

// Close ends the guest, and returns its complaints.
func (r *VMRun) Close() error {
	r.orders.Close()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("reference guest: %w: %s", err, r.stderr.String())
	}
	return nil
}

// order gives an order and returns the lines of the answer before the last, which begins with the
// order's first word.
func (r *VMRun) order(order string) (lines []string, last string, err error) {
	if _, err := fmt.Fprintln(r.orders, order); err != nil {
		return nil, "", fmt.Errorf("order %q: %w", order, err)
	}
	word, _, _ := strings.Cut(order, " ")
	for r.answers.Scan() {
		line := r.answers.Text()
		if first, _, _ := strings.Cut(line, "\t"); first == word {
			return lines, line, nil
		}
		lines = append(lines, line)
	}
	return nil, "", fmt.Errorf("order %q: the reference guest ended; Close says why", order)
}

// parseSegment reads the answer to an order to run.
func parseSegment(line string) (Segment, error) {
	f := strings.Split(line, "\t")
	if len(f) != 5 {
		return Segment{}, fmt.Errorf("answer %q is no segment", line)
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(f[i+1], 10, 63); err != nil {
			return Segment{}, fmt.Errorf("answer %q: %w", line, err)
		}
	}
	return Segment{Iterations: n[0], CPU: time.Duration(n[1]), Wall: time.Duration(n[2]), Checksum: f[4]}, nil
}
