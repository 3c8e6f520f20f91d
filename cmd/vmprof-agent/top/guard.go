package top

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/privilege"
)

// A guard is a process that gives the terminal back if top dies without a word, as by kill -9 or by
// a panic in a goroutine that nobody recovers.
type guard struct {
	process *exec.Cmd
	pipe    *os.File // a byte lets the terminal be; the end without one restores it
}

// GuardVerb is the hidden verb of a guard; guardPipe and guardTTY are its descriptors.
const (
	GuardVerb = "guard"
	guardPipe = 3
	guardTTY  = 4
)

// startGuard starts a guard of the controlling terminal, which is as it is to be later.
func startGuard() (*guard, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the state of the terminal: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", GuardVerb)
	cmd.ExtraFiles = []*os.File{r, tty}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to top's group is not for it
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	g := &guard{cmd, w}
	if err := binary.Write(w, binary.NativeEndian, state); err != nil {
		g.letGo()
		return nil, err
	}
	return g, nil
}

// letGo ends the guard and nothing else.
func (g *guard) letGo() {
	g.pipe.Write([]byte{1}) // if the guard is gone, so is what it could do
	g.pipe.Close()
	g.process.Wait()
}

// resetScreen ends what tcell may have begun: a synchronized update, its three protocols of the
// keyboard, the alternate screen, the keypad's mode, bracketed paste, colours. Terminals ignore
// what they do not know.
const resetScreen = "\x1b[?2026l" + "\x1b[?9001l\x1b[<u\x1b[>4;0m" + "\x1b[?1049l" +
	"\x1b[?1l\x1b>\x1b[?7h\x1b[?2004l\x1b[?25h\x1b[0m\r"

// GuardTerminal is the verb of a guard.
func GuardTerminal(context.Context, []string, io.Writer, io.Writer) error {
	// It is in the background of its terminal, and writes nevertheless.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTTOU, syscall.SIGTTIN,
		syscall.SIGTSTP)
	pipe := os.NewFile(guardPipe, "pipe")
	var state unix.Termios
	if err := binary.Read(pipe, binary.NativeEndian, &state); err != nil {
		return errors.New("this verb is internal to the top verb")
	}
	// An error leaves more than is needed, of which no use is made.
	_ = privilege.Drop(nil)
	if n, _ := pipe.Read(make([]byte, 1)); n == 1 {
		return nil
	}
	tty := os.NewFile(guardTTY, "tty")
	_, err := tty.WriteString(resetScreen)
	return errors.Join(err, unix.IoctlSetTermios(guardTTY, unix.TCSETSW, &state))
}
