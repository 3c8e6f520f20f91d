package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/host/privilege"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// A command is a program that waits to be started until the agent is ready to sample it: a copy of
// this program that becomes COMMAND when its gate opens. So not even its first instruction is
// missed.
type command struct {
	cmd    *exec.Cmd
	gate   *os.File // closing it without a word ends the command before it began
	exited chan error
	keeper *keeper
	began  bool
}

// GateVerb is the hidden verb of the copy; gateFD is where it waits.
const (
	GateVerb = "become"
	gateFD   = 3
)

func startCommand(argv []string, stdout, stderr io.Writer) (*command, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{GateVerb, path}, argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
	cmd.ExtraFiles = []*os.File{r}
	pidfd := -1
	cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &pidfd}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start command: %w", err)
	}
	c := &command{cmd: cmd, gate: w, exited: make(chan error, 1)}
	file := os.NewFile(uintptr(pidfd), "pidfd")
	defer file.Close()
	if c.keeper, err = startKeeper(file); err != nil {
		w.Close()
		cmd.Wait()
		return nil, fmt.Errorf("start keeper of the command: %w", err)
	}
	go func() {
		err := cmd.Wait()
		if err != nil {
			err = fmt.Errorf("%s: %w", argv[0], err)
		}
		c.exited <- err
	}()
	return c, nil
}

func (c *command) pid() int { return c.cmd.Process.Pid }

// release lets the command begin.
func (c *command) release() {
	c.began = true
	c.gate.Write([]byte{1}) // if it has ended, exited reports that
	c.gate.Close()
}

// leave is for the end of a recording. A command that has not begun never does. One that is running
// is ended if the recording was interrupted; otherwise it runs on: its time is its own.
func (c *command) leave(interrupted bool) {
	if !c.began {
		c.gate.Close()
	}
	if interrupted && c.running() {
		c.keeper.end()
		return
	}
	c.keeper.letGo()
}

// running says whether the command has begun and not ended.
func (c *command) running() bool {
	// EPERM: it has become another user's.
	err := c.cmd.Process.Signal(syscall.Signal(0))
	return c.began && len(c.exited) == 0 && (err == nil || errors.Is(err, syscall.EPERM))
}

// Become is the verb behind the gate: it waits for a byte, then executes args[0] with argv
// args[1:].
func Become(_ context.Context, args []string, _, _ io.Writer) error {
	gate := os.NewFile(gateFD, "gate")
	if gate == nil || len(args) < 2 {
		return errors.New("this verb is internal to the record verb")
	}
	if n, _ := gate.Read(make([]byte, 1)); n != 1 {
		return cli.ErrReported // by the recording that did not begin
	}
	gate.Close()
	return fmt.Errorf("execute %s: %w", args[0], syscall.Exec(args[0], args[1:], os.Environ()))
}

// A keeper is a process that ends COMMAND if the recording dies without a word, as by kill -9. The
// kernel's own means, PR_SET_PDEATHSIG, would also end a command that is to run on after -d, and is
// bound to the thread that forked.
type keeper struct {
	process *exec.Cmd
	pipe    *os.File // a byte lets COMMAND go; the end without one ends it
}

// KeepVerb is the hidden verb of a keeper; keepPipe and keepCommand are its descriptors.
const (
	KeepVerb    = "keep"
	keepPipe    = 3
	keepCommand = 4 // a pidfd: it cannot come to mean another process
)

// keepGrace is how long COMMAND may take to end after SIGTERM.
const keepGrace = 30 * time.Second

// startKeeper starts a keeper of the process that pidfd is of.
func startKeeper(pidfd *os.File) (*keeper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", KeepVerb)
	cmd.ExtraFiles = []*os.File{r, pidfd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the recording's group is not for it
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	return &keeper{cmd, w}, nil
}

// letGo ends the keeper and nothing else.
func (k *keeper) letGo() {
	k.pipe.Write([]byte{1}) // if the keeper is gone, so is what it could do
	k.pipe.Close()
	k.process.Wait()
}

// end has the keeper end COMMAND, and does not wait for that.
func (k *keeper) end() { k.pipe.Close() }

// Keep is the verb of a keeper.
func Keep(context.Context, []string, io.Writer, io.Writer) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	pipe := os.NewFile(keepPipe, "pipe")
	command := []unix.PollFd{{Fd: keepCommand, Events: unix.POLLIN}}
	if _, err := unix.Poll(command, 0); err != nil || command[0].Revents&unix.POLLNVAL != 0 {
		return errors.New("this verb is internal to the record verb")
	}
	// An error leaves more than is needed, of which no use is made.
	_ = privilege.Drop([]cap.Value{cap.KILL})
	if n, _ := pipe.Read(make([]byte, 1)); n == 1 {
		return nil
	}
	if err := endByPidfd(command, unix.SIGTERM, keepGrace); err != nil {
		return err
	}
	return endByPidfd(command, unix.SIGKILL, 0)
}

// endByPidfd sends a signal and waits until the process has ended, or for so long.
func endByPidfd(command []unix.PollFd, signal unix.Signal, wait time.Duration) error {
	err := unix.PidfdSendSignal(int(command[0].Fd), signal, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("end the command: %w", err)
	}
	for deadline := time.Now().Add(wait); time.Until(deadline) > 0; {
		n, err := unix.Poll(command, int(time.Until(deadline).Milliseconds())+1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return nil
}
