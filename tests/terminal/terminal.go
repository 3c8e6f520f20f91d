// Package terminal runs programs in a pseudo-terminal, for tests of what their users see.
//
//	term := terminal.Start(t, exec.Command("vmprof-agent", "top"))
//	term.Press("?")
//	term.Shows("all keys", 0)
//	fmt.Println(term.Screen())
package terminal

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// Columns and Rows are the size of the terminal at first.
const Columns, Rows = 80, 24

// A Terminal is a pseudo-terminal in which a program runs.
type Terminal struct {
	Command *exec.Cmd
	Ended   chan struct{} // closed when the program has ended and all of its output is here

	t      testing.TB
	master *os.File
	slave  *os.File // open here, too, so that its state can be read when the program is gone
	before unix.Termios

	lock   sync.Mutex
	output []byte
}

// Start starts a program in a terminal of Columns and Rows. It is killed with the test.
func Start(t testing.TB, command *exec.Cmd) *Terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{t: t, master: master, slave: slave, Command: command, Ended: make(chan struct{})}
	term.Resize(Columns, Rows)
	term.before = term.state()
	if command.Env == nil {
		command.Env = os.Environ()
	}
	command.Env = append(command.Env, "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	command.Stdin, command.Stdout, command.Stderr = slave, slave, slave
	if command.SysProcAttr == nil {
		command.SysProcAttr = new(syscall.SysProcAttr)
	}
	command.SysProcAttr.Setsid, command.SysProcAttr.Setctty = true, true
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{}) // closed when nothing follows
	go func() {
		defer close(read)
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			if term.add(buffer[:n]) || err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(term.Ended)
		command.Wait()
		if _, err := slave.WriteString(last); err == nil {
			<-read
		}
	}()
	t.Cleanup(func() {
		command.Process.Kill()
		<-term.Ended
		slave.Close()
		master.Close()
	})
	return term
}

// last is written to the terminal after all that the program has written.
const last = "\x00the program has ended\x00"

// add adds what was read to the output, and reports whether that was the last of it.
func (t *Terminal) add(read []byte) (ended bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.output, ended = bytes.CutSuffix(append(t.output, read...), []byte(last))
	return ended
}

// Resize changes the size of the terminal.
func (t *Terminal) Resize(columns, rows uint16) {
	t.t.Helper()
	if err := pty.Setsize(t.master, &pty.Winsize{Rows: rows, Cols: columns}); err != nil {
		t.t.Fatal(err)
	}
}

func (t *Terminal) state() unix.Termios {
	t.t.Helper()
	state, err := unix.IoctlGetTermios(int(t.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.t.Fatal(err)
	}
	return *state
}

// AsBefore reports whether the modes of the terminal's line are those from before the program.
func (t *Terminal) AsBefore() bool { return t.state() == t.before }

// control are sequences that move the cursor or set styles.
var control = regexp.MustCompile(`\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78])`)

// Raw is all that was written so far.
func (t *Terminal) Raw() []byte {
	t.lock.Lock()
	defer t.lock.Unlock()
	return bytes.Clone(t.output)
}

// Text is all that was written so far, without control sequences.
func (t *Terminal) Text() string { return string(control.ReplaceAll(t.Raw(), nil)) }

// Screen is what a terminal of Columns shows now, with what has scrolled away.
func (t *Terminal) Screen() string { return Screen(t.Raw(), Columns) }

// redraw is Ctrl-L. Without it only what has changed is drawn, which need not be whole words.
const redraw = "\x0c"

// Shows waits until the terminal has shown a text after the first so many bytes, and returns how
// many there are now. The program draws everything anew at Ctrl-L.
func (t *Terminal) Shows(text string, since int) int {
	t.t.Helper()
	var redrawn time.Time
	if err := wait.Until(t.t.Context(), time.Minute, text+" is shown", func() (bool, error) {
		if time.Since(redrawn) > time.Second/4 {
			t.Press(redraw)
			redrawn = time.Now()
		}
		return bytes.Contains(control.ReplaceAll(t.Raw()[since:], nil), []byte(text)), nil
	}); err != nil {
		t.t.Fatalf("%v:\n%s", err, t.Screen())
	}
	return len(t.Raw())
}

// Press sends keys.
func (t *Terminal) Press(keys string) {
	t.t.Helper()
	if _, err := t.master.WriteString(keys); err != nil {
		t.t.Fatal(err)
	}
}

// modes are sequences that change how a terminal works, and those that undo it: the alternate
// screen, the cursor, the keypad, protocols of the keyboard.
var modes = []struct{ on, off string }{
	{"\x1b[?1049h", "\x1b[?1049l"}, {"\x1b[?25l", "\x1b[?25h"}, {"\x1b[?1h", "\x1b[?1l"}, {"\x1b[>4;2m", "\x1b[>4;0m"},
	{"\x1b[>1u", "\x1b[<u"},
	{"\x1b[?9001h", "\x1b[?9001l"}, {"\x1b[?2026h", "\x1b[?2026l"}, {"\x1b[?2004h", "\x1b[?2004l"},
}

// End waits until the program has ended, and checks its exit code and that the terminal is as it
// was.
func (t *Terminal) End(code int) {
	t.t.Helper()
	select {
	case <-t.Ended:
	case <-time.After(time.Minute):
		t.t.Fatal("the program does not end")
	}
	if got := t.Command.ProcessState.ExitCode(); got != code {
		t.t.Errorf("exit code %d, want %d:\n%s", got, code, t.Text())
	}
	wait.For(t.t, 10*time.Second, "the terminal is as it was", func() bool {
		for _, mode := range modes {
			if raw := t.Raw(); bytes.LastIndex(raw, []byte(mode.on)) > bytes.LastIndex(raw, []byte(mode.off)) {
				return false
			}
		}
		return t.AsBefore()
	})
}
