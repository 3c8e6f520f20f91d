// Package php runs PHP programs whose calls are known.
//
//	guest, err := php.Start(ctx, php.Known, php.Traced)
//	defer guest.Close()
//	answer, err := guest.Run(1000)
package php

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed programs
var programs embed.FS

// A Program is a PHP program of this package, by its file.
type Program string

// Programs.
const (
	Known  Program = "known.php"  // says itself which calls it makes: see Truth
	Parser Program = "parser.php" // PHP-Parser; needs the Debian package php-parser
	Forks  Program = "forks.php"  // a process that forks while it makes calls; needs the extension pcntl
)

// Fake is no PHP: a C program that looks like one and means harm. It needs gcc, and runs on amd64
// only.
const Fake Program = "fake.c"

// Traced is the environment in which PHP passes its probes.
const Traced = "USE_ZEND_DTRACE=1"

// ErrMissing: PHP, or what a program needs, is not installed.
var ErrMissing = errors.New("PHP programs need the Debian packages php-cli, php-parser and gcc")

// A Guest is a program that waits for orders.
type Guest struct {
	cmd *exec.Cmd
	dir string // with all programs and, but for Fake, the guest's own copy of PHP
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts a program, with more environment. It ends when ctx does. Each guest runs a copy of
// PHP of its own: a probe is in all processes of a file, so that somebody else's recording would
// show in the guest.
func Start(ctx context.Context, p Program, env ...string) (*Guest, error) {
	tool, err := toolOf(p)
	if err != nil {
		return nil, err
	}
	return start(ctx, tool, copyFile, p, env)
}

// Beside starts a program as [Start] does, in the same file of PHP as g: what is attached to the
// one is attached to both. It outlives g.
func (g *Guest) Beside(ctx context.Context, p Program, env ...string) (*Guest, error) {
	return start(ctx, g.cmd.Path, os.Link, p, env)
}

// start starts a program with what place makes of the tool in the guest's directory.
func start(
	ctx context.Context, tool string, place func(from, to string) error, p Program, env []string,
) (*Guest, error) {
	dir, err := os.MkdirTemp("", "vmprof-php-")
	if err != nil {
		return nil, err
	}
	g := &Guest{dir: dir}
	if err := g.prepare(ctx, tool, place, p); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare %s: %w", p, err), os.RemoveAll(dir))
	}
	g.cmd.Env = append(os.Environ(), env...)
	g.cmd.Stderr = os.Stderr
	if err := g.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p, err), os.RemoveAll(dir))
	}
	return g, nil
}

// prepare fills the guest's directory.
func (g *Guest) prepare(ctx context.Context, tool string, place func(from, to string) error, p Program) error {
	if err := write(g.dir); err != nil {
		return err
	}
	if p == Fake {
		program := filepath.Join(g.dir, "php-fake")
		if out, err := exec.CommandContext(ctx, tool, "-O2", "-rdynamic", "-o", program,
			g.File(p)).CombinedOutput(); err != nil {
			return fmt.Errorf("compile: %w: %s", err, out)
		}
		g.cmd = exec.CommandContext(ctx, program)
		return nil
	}
	program := filepath.Join(g.dir, filepath.Base(tool))
	if err := place(tool, program); err != nil {
		return err
	}
	g.cmd = exec.CommandContext(ctx, program, g.File(p))
	return nil
}

// toolOf returns what runs or compiles a program.
func toolOf(p Program) (string, error) {
	name := "php"
	if p == Fake {
		name = "gcc"
	}
	tool, err := exec.LookPath(name)
	if err != nil || p == Fake && runtime.GOARCH != "amd64" {
		return "", ErrMissing
	}
	if _, err := os.Stat("/usr/share/php/PhpParser/autoload.php"); p == Parser && err != nil {
		return "", ErrMissing
	}
	return tool, nil
}

// copyFile copies an executable file.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o700)
}

// write writes all programs into a directory.
func write(dir string) error {
	files, err := fs.Sub(programs, "programs")
	if err == nil {
		err = os.CopyFS(dir, files)
	}
	if err != nil {
		return fmt.Errorf("write PHP programs: %w", err)
	}
	return nil
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
	line, err := g.out.ReadString('\n')
	if err != nil || line != "ready\n" {
		g.cmd.Process.Kill()
		g.cmd.Wait()
		return fmt.Errorf("it said %q: %w", line, err)
	}
	return nil
}

// PID of the process.
func (g *Guest) PID() int { return g.cmd.Process.Pid }

// File is where the program lies, as PHP names it.
func (g *Guest) File(p Program) string { return filepath.Join(g.dir, string(p)) }

// Run has the program do n rounds and returns its answer, which depends on nothing but n.
func (g *Guest) Run(n int) (string, error) { return g.Order(fmt.Sprintf("run %d", n)) }

// Order gives the program an order that it knows and returns its answer.
func (g *Guest) Order(text string) (string, error) {
	if _, err := fmt.Fprintln(g.in, text); err != nil {
		return "", err
	}
	line, err := g.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Kill ends the program at once, if it still runs.
func (g *Guest) Kill() { g.cmd.Process.Kill() }

// Close ends the program and waits for it.
func (g *Guest) Close() error {
	g.in.Close()
	err := g.cmd.Wait()
	return errors.Join(err, os.RemoveAll(g.dir))
}
