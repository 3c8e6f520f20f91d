package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// A command is a program that waits to be started until the agent is ready to sample it: a copy of this program
// that becomes COMMAND when its gate opens. So not even its first instruction is missed.
type command struct {
	cmd    *exec.Cmd
	gate   *os.File // closing it without a word ends the command before it began
	exited chan error
	keeper *keeper
	began  bool
}

// gateVerb is the hidden verb of the copy; gateFD is where it waits.
const (
	gateVerb = "become"
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
	cmd := exec.Command("/proc/self/exe", append([]string{gateVerb, path}, argv...)...)
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

// leave is for the end of a recording. A command that has not begun never does. One that is running is ended if the
// recording was interrupted; otherwise it runs on: its time is its own.
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

// become is the verb behind the gate: it waits for a byte, then executes args[0] with argv args[1:].
func become(_ context.Context, args []string, _, _ io.Writer) error {
	gate := os.NewFile(gateFD, "gate")
	if gate == nil || len(args) < 2 {
		return errors.New("this verb is internal to the record verb")
	}
	if n, _ := gate.Read(make([]byte, 1)); n != 1 {
		return errReported // by the recording that did not begin
	}
	gate.Close()
	return fmt.Errorf("execute %s: %w", args[0], syscall.Exec(args[0], args[1:], os.Environ()))
}
