// Package python runs a program of Python that says in which of its functions it spent its time.
//
//	for _, i := range python.Find() {
//		guest, err := i.Start(ctx)
//		...
//		spent, err := guest.Close() // seconds of CPU time by function
//	}
package python

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed programs/shares.py
var program string

// ErrMissing: there is no CPython.
var ErrMissing = errors.New("programs of Python need the Debian package python3")

// An Interpreter is a CPython that is installed.
type Interpreter struct {
	Path  string
	Minor int // 11 for 3.11
}

// String is "3.11".
func (i Interpreter) String() string { return fmt.Sprintf("3.%d", i.Minor) }

// Versions that the agent supports.
const (
	oldest = 9
	newest = 14
)

// Find returns the interpreters of versions that the agent supports: those of the system, of pyenv,
// and of VMPROF_PYTHONS, a list of programs. Oldest first.
func Find() (found []Interpreter) {
	programs := strings.Fields(os.Getenv("VMPROF_PYTHONS"))
	root := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); root == "" && err == nil {
		root = filepath.Join(home, ".pyenv")
	}
	for _, pattern := range []string{filepath.Join(root, "versions", "*", "bin", "python3"), "/usr/bin/python3"} {
		matches, _ := filepath.Glob(pattern)
		programs = append(programs, matches...)
	}
	for _, p := range programs {
		const ask = "import sys; print(sys.implementation.name, sys.version_info.minor)"
		out, err := exec.Command(p, "-c", ask).Output()
		var minor int
		if _, scan := fmt.Sscanf(string(out), "cpython %d", &minor); err == nil && scan == nil &&
			minor >= oldest && minor <= newest {
			found = append(found, Interpreter{p, minor})
		}
	}
	slices.SortStableFunc(found, func(a, b Interpreter) int { return a.Minor - b.Minor })
	return found
}

// Subinterpreters reports whether programs can make some.
func (i Interpreter) Subinterpreters() bool {
	return exec.Command(i.Path, "-c", "import _xxsubinterpreters").Run() == nil ||
		exec.Command(i.Path, "-c", "import _interpreters").Run() == nil
}

// Marked are functions that call others on their marked line.
var Marked = []string{"heavy", "light", "key", "ordered", "steps", "consumed", "descended"}

// Line is the line of the program that is marked with that name.
func Line(name string) int64 {
	before, _, _ := strings.Cut(program, "# LINE "+name+"\n")
	return int64(strings.Count(before, "\n") + 1)
}

// A Guest is the program at work.
type Guest struct {
	cmd *exec.Cmd
	dir string
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts the program with arguments as it has them. It works when Start returns, and ends
// when ctx does.
func (i Interpreter) Start(ctx context.Context, args ...string) (*Guest, error) {
	g := &Guest{}
	var err error
	if g.dir, err = os.MkdirTemp("", "vmprof-python-"); err != nil {
		return nil, err
	}
	path := filepath.Join(g.dir, "shares.py")
	if err := os.WriteFile(path, []byte(program), 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(g.dir))
	}
	g.cmd = exec.CommandContext(ctx, i.Path, append([]string{path}, args...)...)
	g.cmd.Stderr = os.Stderr
	if err := g.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", i.Path, err), os.RemoveAll(g.dir))
	}
	return g, nil
}

func (g *Guest) start() error {
	var err error
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	g.out = bufio.NewReader(out)
	if err := g.cmd.Start(); err != nil {
		return err
	}
	if line, err := g.out.ReadString('\n'); err != nil || line != "ready\n" {
		g.cmd.Process.Kill()
		return fmt.Errorf("it said %q: %w", line, errors.Join(err, g.cmd.Wait()))
	}
	return nil
}

// PID of the process.
func (g *Guest) PID() int { return g.cmd.Process.Pid }

// Change has a program that was started with "exec" or "fork" do so.
func (g *Guest) Change() error {
	_, err := g.in.Write([]byte{'\n'})
	return err
}

// Worker is the process that works after "exec" or "fork", 0 if it does not yet.
func (g *Guest) Worker() int {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", g.PID()))
	var child int
	if _, err := fmt.Sscan(string(children), &child); err == nil {
		return child
	}
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.PID()))
	if strings.HasSuffix(string(command), "\x00again\x00") {
		return g.PID()
	}
	return 0
}

// Close ends the program, and returns how many seconds of CPU time it spent in each of its places.
func (g *Guest) Close() (spent map[string]float64, err error) {
	g.in.Close()
	err = json.NewDecoder(g.out).Decode(&spent)
	return spent, errors.Join(err, g.cmd.Wait(), os.RemoveAll(g.dir))
}
