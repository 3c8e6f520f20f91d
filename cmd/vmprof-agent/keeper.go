package main

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

	"github.com/vmprof-agent/vmprof-agent/agent/privilege"
)

// A keeper is a process that ends COMMAND if the recording dies without a word, as by kill -9. The kernel's own means,
// PR_SET_PDEATHSIG, would also end a command that is to run on after -d, and is bound to the thread that forked.
type keeper struct {
	process *exec.Cmd
	pipe    *os.File // a byte lets COMMAND go; the end without one ends it
}

// keepVerb is the hidden verb of a keeper; keepPipe and keepCommand are its descriptors.
const (
	keepVerb    = "keep"
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
	cmd := exec.Command("/proc/self/exe", keepVerb)
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

// keep is the verb of a keeper.
func keep(context.Context, []string, io.Writer, io.Writer) error {
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
