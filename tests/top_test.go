package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/terminal"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// startTop starts top in a terminal of 80 columns and 24 lines.
func startTop(t *testing.T, args ...string) *terminal.Terminal {
	t.Helper()
	command := exec.Command(built.Path, append([]string{"top"}, args...)...)
	command.Dir = t.TempDir()
	return terminal.Start(t, command)
}

func TestTop(t *testing.T) {
	guest := start(t, "Plain")
	term := startTop(t, "-p", strconv.Itoa(guest.PID()))
	at := term.Shows(heavy, 0)
	if term.AsBefore() {
		t.Error("top leaves the terminal in its line mode, so that keys need Enter")
	}
	// Other views and other sizes.
	term.Press("?")
	at = term.Shows("top itself takes", at)
	term.Press("?/heavy\rc") // leaves in other methods may be hotter
	at = term.Shows("callers of "+heavy, at)
	term.Resize(40, 10)
	at = term.Shows("q quit  ? help  t", at)
	term.Resize(100, 30)
	at = term.Shows("l lock", at)
	// A file of what is shown.
	path := filepath.Join(term.Command.Dir, "shown.pb.gz")
	term.Press("w\x15" + string(bytes.Repeat([]byte{0x7f}, 80)) + path + "\r")
	term.Shows("written to ", at)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
	term.Press("q")
	term.End(0)
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
	at := term.Shows("guest.", 0)
	before := probes(t, term.Command.Process.Pid)
	term.Press("a")
	at = term.Shows("attaching probes", at)
	term.Shows("guest.Allocating.pair", at)
	if n := probes(t, term.Command.Process.Pid); n <= before {
		t.Errorf("%d probes with allocations, %d without", n, before)
	}
	term.Press("m")
	wait.For(t, time.Minute, "the probes of allocations are detached",
		func() bool { return probes(t, term.Command.Process.Pid) == before })
	term.Press("\x03") // Ctrl-C
	term.End(0)
}

// A process that starts later and has the name of -p is shown too, and so is the end of the last
// one.
func TestTopFollows(t *testing.T) {
	needs.Root(t, "sampling")
	jdk, name := needs.JDK(t), fmt.Sprintf("followed-%d", os.Getpid())
	programs := guests.Programs()
	named := func(program string) *guests.Guest {
		t.Helper()
		at := slices.IndexFunc(programs, func(p guests.Program) bool { return p.Name == program })
		guest, err := guests.Start(t.Context(), jdk, programs[at],
			guests.Flavour{Flags: []string{"-Dspring.application.name=" + name}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { guest.Close() })
		return guest
	}
	first := named("Plain")
	term := startTop(t, "-p", name)
	at := term.Shows("guest.Plain.", 0)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	at = term.Shows("no process of -p "+name+" runs any more", at)
	named("Recursive")
	at = term.Shows("started: ", at)
	term.Shows("guest.Recursive.", at)
	term.Press("q")
	term.End(0)
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

// A process that is stopped did not choose to use no CPU time, and top says so; when it continues,
// it is shown.
func TestTopStopped(t *testing.T) {
	needs.Root(t, "sampling")
	loop := exec.Command("sh", "-c", "kill -STOP $$; while :; do :; done")
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Process.Kill(); loop.Wait() })
	pid := loop.Process.Pid
	wait.For(t, time.Minute, "it is stopped", func() bool {
		stat, err := proc.DefaultRoot.Stat(pid)
		return err == nil && stat.State == 'T'
	})
	term := startTop(t, "-p", strconv.Itoa(pid))
	at := term.Shows(fmt.Sprintf("process %d is stopped by a signal: `kill -CONT %d`", pid, pid), 0)
	if err := loop.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	term.Shows("%  ", at) // the share and the range of a function
	term.Press("q")
	term.End(0)
}

// However top ends, the terminal is as it was.
func TestTopEnds(t *testing.T) {
	guest := start(t, "Plain")
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		code   int
	}{{"terminated", syscall.SIGTERM, 0}, {"hung up", syscall.SIGHUP, 0}, {"panic", syscall.SIGQUIT, 2},
		{"killed", syscall.SIGKILL, -1}} {
		t.Run(c.name, func(t *testing.T) {
			term := startTop(t, "-p", strconv.Itoa(guest.PID()))
			term.Shows("vmprof-agent top", 0)
			if err := term.Command.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			term.End(c.code)
		})
	}
}

// Without a terminal, top says what to use instead.
func TestTopNeedsTerminal(t *testing.T) {
	if got := agent(t, "top"); got.code != 2 || !bytes.Contains([]byte(got.stderr), []byte("use record")) {
		t.Errorf("ended with %d: %s", got.code, got.stderr)
	}
	term := startTop(t, "--help") // has no screen
	<-term.Ended
	if !term.AsBefore() {
		t.Error("the help changes the terminal")
	}
}

// Each view has rows of what processes do, of chosen ones and of the whole machine.
func TestTopViews(t *testing.T) {
	needs.Root(t, "sampling")
	jdk := needs.JDK(t)
	var chosen []string
	for _, program := range []events.Program{events.Allocating, events.Waiting} {
		guest := startEvents(t, jdk, program)
		// until it is killed: threads that begin later would not show whether those of before are
		// followed
		go guest.Run(2, 1<<30)
		chosen = append(chosen, "-p", strconv.Itoa(guest.PID()))
	}
	for name, args := range map[string][]string{"chosen": chosen, "all": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is the wait for windows
			term := startTop(t, append(args, "--interval=1")...)
			term.Resize(200, 50)
			at := term.Shows("vmprof-agent top", 0)
			// The search leaves rows of the two programs only. The title has its words, too, but
			// not what rows have after them.
			for _, view := range []struct{ key, heading, search, row string }{
				{"m", "share 95 % range method", "guest.Waitin", "guest.Waiting."},
				{"o", "wait/s", "guest.Waitin", "guest.Waiting."},
				{"l", "delay/s", "guest.Waitin", "guest.Waiting."},
				{"a", "alloc/s", "guest.Allocatin", "guest.Allocating."},
				{"t", "thread group", "worker", "worker-*"},
				{"d", "before", "guest.Waitin", "guest.Waiting."},
			} {
				term.Press(view.key + "/\x15" + view.search + "\r")
				at = term.Shows(view.heading, at)
				at = term.Shows(view.row, at)
			}
			term.Press("q")
			term.End(0)
		})
	}
}
