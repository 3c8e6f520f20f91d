package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A terminal is a pseudo-terminal in which top runs.
type terminal struct {
	*testing.T
	command *exec.Cmd
	master  *os.File
	slave   *os.File // open here, too, so that its state can be read when top is gone
	before  unix.Termios
	ended   chan struct{} // closed when top has ended and all of its output is here

	lock   sync.Mutex
	output []byte
}

// startTop starts top in a terminal of 80 columns and 24 lines.
func startTop(t *testing.T, args ...string) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	term := &terminal{T: t, master: master, slave: slave, ended: make(chan struct{})}
	term.before = term.state()
	term.command = exec.Command(built.Path, append([]string{"top"}, args...)...)
	term.command.Dir = t.TempDir()
	term.command.Env = append(os.Environ(), "TERM=xterm-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	term.command.Stdin, term.command.Stdout, term.command.Stderr = slave, slave, slave
	term.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			term.lock.Lock()
			term.output = append(term.output, buffer[:n]...)
			term.lock.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(term.ended)
		term.command.Wait()
	}()
	t.Cleanup(func() {
		term.command.Process.Kill()
		<-term.ended
		slave.Close()
		master.Close()
	})
	return term
}

func (t *terminal) state() unix.Termios {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(t.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *state
}

// control are sequences that move the cursor or set styles.
var control = regexp.MustCompile(`\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78])`)

// raw is all that was written so far.
func (t *terminal) raw() []byte {
	t.lock.Lock()
	defer t.lock.Unlock()
	return bytes.Clone(t.output)
}

// redraw is Ctrl-L. Without it only what has changed is drawn, which need not be whole words.
const redraw = "\x0c"

// shows waits until the terminal has shown a text after the first so many bytes, and returns how many there are now.
func (t *terminal) shows(text string, since int) int {
	t.Helper()
	var redrawn time.Time
	wait.For(t.T, time.Minute, text+" is shown", func() bool {
		if time.Since(redrawn) > time.Second/4 {
			t.press(redraw)
			redrawn = time.Now()
		}
		return bytes.Contains(control.ReplaceAll(t.raw()[since:], nil), []byte(text))
	})
	return len(t.raw())
}

func (t *terminal) press(keys string) {
	t.Helper()
	if _, err := t.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// modes are sequences that change how a terminal works, and those that undo it: the alternate screen, the cursor, the keypad, protocols of
// the keyboard.
var modes = []struct{ on, off string }{
	{"\x1b[?1049h", "\x1b[?1049l"}, {"\x1b[?25l", "\x1b[?25h"}, {"\x1b[?1h", "\x1b[?1l"}, {"\x1b[>4;2m", "\x1b[>4;0m"}, {"\x1b[>1u", "\x1b[<u"},
	{"\x1b[?9001h", "\x1b[?9001l"}, {"\x1b[?2026h", "\x1b[?2026l"}, {"\x1b[?2004h", "\x1b[?2004l"},
}

// end waits until top has ended, and checks that the terminal is as it was.
func (t *terminal) end(code int) {
	t.Helper()
	select {
	case <-t.ended:
	case <-time.After(time.Minute):
		t.Fatal("top does not end")
	}
	if got := t.command.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, control.ReplaceAll(t.raw(), nil))
	}
	wait.For(t.T, 10*time.Second, "the terminal is as it was", func() bool {
		for _, mode := range modes {
			if raw := t.raw(); bytes.LastIndex(raw, []byte(mode.on)) > bytes.LastIndex(raw, []byte(mode.off)) {
				return false
			}
		}
		return t.state() == t.before
	})
}

func TestTop(t *testing.T) {
	guest := start(t, "Plain")
	term := startTop(t, "-p", strconv.Itoa(guest.PID()))
	at := term.shows(heavy, 0)
	if term.state() == term.before {
		t.Error("top leaves the terminal in its line mode, so that keys need Enter")
	}
	// Other views and other sizes.
	term.press("?")
	at = term.shows("top itself takes", at)
	term.press("?/heavy\rc") // leaves in other methods may be hotter
	at = term.shows("callers of "+heavy, at)
	if err := pty.Setsize(term.master, &pty.Winsize{Rows: 10, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	at = term.shows("q quit  ? help  t", at)
	if err := pty.Setsize(term.master, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	at = term.shows("l lock", at)
	// A file of what is shown.
	path := filepath.Join(term.command.Dir, "shown.pb.gz")
	term.press("w\x15" + string(bytes.Repeat([]byte{0x7f}, 80)) + path + "\r")
	term.shows("written to ", at)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
	term.press("q")
	term.end(0)
}

// Allocations are recorded once their view is open, and no longer than that.
func TestTopAllocations(t *testing.T) {
	needs.Root(t, "sampling")
	guest := startEvents(t, needs.JDK(t), events.Allocating)
	defer repeat(t, func() error {
		_, err := guest.Run(1, 10_000_000)
		return err
	})()
	term := startTop(t, "-p", strconv.Itoa(guest.PID()))
	at := term.shows("guest.", 0)
	before := probes(t, term.command.Process.Pid)
	term.press("a")
	at = term.shows("attaching probes", at)
	term.shows("guest.Allocating.pair", at)
	if n := probes(t, term.command.Process.Pid); n <= before {
		t.Errorf("%d probes with allocations, %d without", n, before)
	}
	term.press("m")
	wait.For(t, time.Minute, "the probes of allocations are detached", func() bool { return probes(t, term.command.Process.Pid) == before })
	term.press("\x03") // Ctrl-C
	term.end(0)
}

// probes is how many links of probes a process has.
func probes(t *testing.T, pid int) (n int) {
	t.Helper()
	infos, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range infos {
		if info, err := os.ReadFile(path); err == nil && bytes.Contains(info, []byte("uprobe_multi")) {
			n++
		}
	}
	return n
}

// However top ends, the terminal is as it was.
func TestTopEnds(t *testing.T) {
	guest := start(t, "Plain")
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
	}{{"terminated", syscall.SIGTERM, 0}, {"hung up", syscall.SIGHUP, 0}, {"panic", syscall.SIGQUIT, 2}, {"killed", syscall.SIGKILL, -1}} {
		t.Run(c.name, func(t *testing.T) {
			term := startTop(t, "-p", strconv.Itoa(guest.PID()))
			term.shows("vmprof-agent top", 0)
			if err := term.command.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			term.end(c.code)
		})
	}
}

// Without a terminal, top says what to use instead.
func TestTopNeedsTerminal(t *testing.T) {
	if got := agent(t, "top"); got.code != 2 || !bytes.Contains([]byte(got.stderr), []byte("use record")) {
		t.Errorf("ended with %d: %s", got.code, got.stderr)
	}
	term := startTop(t, "--help") // has no screen
	<-term.ended
	if term.state() != term.before {
		t.Error("the help changes the terminal")
	}
}
