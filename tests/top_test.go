package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A screen is a terminal with a program on it.
type screen struct {
	master, slave *os.File

	wide bool

	mu   sync.Mutex
	text strings.Builder
}

func openScreen(t *testing.T) *screen {
	t.Helper()
	s := new(screen)
	var err error
	if s.master, s.slave, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.master.Close(); s.slave.Close() })
	s.resize(t)
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := s.master.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// resize makes the program draw everything anew.
func (s *screen) resize(t *testing.T) {
	t.Helper()
	size := pty.Winsize{Rows: 24, Cols: 80}
	if s.wide = !s.wide; s.wide {
		size.Cols++
	}
	if err := pty.Setsize(s.master, &size); err != nil {
		t.Fatal(err)
	}
}

// shows reports whether a text is drawn, and forgets what was drawn before.
func (s *screen) shows(t *testing.T, text string) bool {
	t.Helper()
	s.resize(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, after, found := strings.Cut(s.text.String(), text)
	if found {
		s.text.Reset()
		s.text.WriteString(after)
	}
	return found
}

func (s *screen) settings(t *testing.T) unix.Termios {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *settings
}

// top shows the hot method, records allocations only when they are asked for, writes a profile, and leaves the terminal as it was.
func TestTop(t *testing.T) {
	guest, s, dir := start(t, "Plain"), openScreen(t), t.TempDir()
	before := s.settings(t)
	command := exec.CommandContext(t.Context(), built.Path, "top", "-p", strconv.Itoa(guest.PID()), "-i", "0.5", "-F", strconv.Itoa(frequency))
	command.Stdin, command.Stdout, command.Stderr = s.slave, s.slave, s.slave
	command.Dir, command.Env = dir, append(os.Environ(), "TERM=xterm-256color")
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	press := func(keys string) {
		if _, err := s.master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the hot method is shown", func() bool { return s.shows(t, heavy) })
	if s.settings(t) == before {
		t.Error("the terminal still echoes keys and waits for lines")
	}
	press("t")
	eventually(t, "threads are shown", func() bool { return s.shows(t, "thread group") })
	press("a")
	eventually(t, "allocations are shown", func() bool { return s.shows(t, "class") })
	eventually(t, "allocations are recorded", func() bool { return s.shows(t, "B/s") })
	press("mw")
	eventually(t, "a file was written", func() bool { return s.shows(t, "written to ") })
	files, err := filepath.Glob(filepath.Join(dir, "vmprof-top-*.pb.gz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v", files, err)
	}
	p, err := profiler.ReadProfile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
	press("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after := s.settings(t); after != before {
		t.Errorf("terminal settings were %+v, are %+v", before, after)
	}
	const leave = "\x1b[?1049l" // the alternate screen: xterm's control sequences
	eventually(t, "what was on the terminal is back", func() bool { return s.shows(t, leave) })
}

// Without a terminal top says what to use instead, and a wrong name leaves the terminal alone.
func TestTopRefuses(t *testing.T) {
	got := agent(t, "top")
	if got.code != 2 || !strings.Contains(got.stderr, "top needs a terminal; use record") {
		t.Errorf("without a terminal: %d, %s", got.code, got.stderr)
	}
	for _, args := range [][]string{{"top", "shop"}, {"top", "-i", "1ms"}, {"top", "-F", "0"}, {"top", "--budget", "2"}} {
		if got := agent(t, args...); got.code != 2 {
			t.Errorf("%q ended with %d: %s", args, got.code, got.stderr)
		}
	}
}
