// Package node runs JavaScript programs whose calls are known.
//
//	guest, err := node.Start(ctx)
//	defer guest.Close()
package node

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed programs/calls.js
var program []byte

// ErrMissing: there is no Node.js.
var ErrMissing = errors.New("JavaScript programs need the Debian package nodejs")

// flags have V8 write a map of its code for perf, and compile each function once, when it is first
// called: by the compiler that inlines nothing.
var flags = []string{"--perf-basic-prof", "--always-sparkplug", "--no-opt"}

// A Guest is calls.js at work.
type Guest struct {
	cmd *exec.Cmd
	dir string
	in  io.WriteCloser
}

// Start starts it. It works when Start returns, and ends when ctx does.
func Start(ctx context.Context) (*Guest, error) {
	tool, err := exec.LookPath("node")
	if err != nil {
		return nil, ErrMissing
	}
	g := &Guest{}
	if g.dir, err = os.MkdirTemp("", "vmprof-node-"); err != nil {
		return nil, err
	}
	path := filepath.Join(g.dir, "calls.js")
	if err := os.WriteFile(path, program, 0o644); err != nil {
		return nil, errors.Join(err, os.RemoveAll(g.dir))
	}
	g.cmd = exec.CommandContext(ctx, tool, append(flags, path)...)
	g.cmd.Dir, g.cmd.Stderr = g.dir, os.Stderr // V8 also writes a log
	if err := g.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", tool, err), os.RemoveAll(g.dir))
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
	if err := g.cmd.Start(); err != nil {
		return err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		g.cmd.Process.Kill()
		return fmt.Errorf("it said %q: %w", line, errors.Join(err, g.Close()))
	}
	return nil
}

// PID of the process.
func (g *Guest) PID() int { return g.cmd.Process.Pid }

// Map is where V8 writes where its code is.
func (g *Guest) Map() string { return fmt.Sprintf("/tmp/perf-%d.map", g.PID()) }

// Close ends the program and waits for it. The error also reports wrong results.
func (g *Guest) Close() error {
	g.in.Close()
	return errors.Join(g.cmd.Wait(), os.Remove(g.Map()), os.RemoveAll(g.dir))
}
