// Package paced runs a program that computes at a pace, as services do, and knows how much CPU time
// each part of it took.
//
//	guest, err := paced.Start(ctx)
//	defer guest.Close()
//	truth, err := guest.Do(paced.Order{Units: 1000, Length: 110 * time.Microsecond, Rate: 1000})
package paced

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	pprof "github.com/google/pprof/profile"
)

//go:embed c/guest.c
var source []byte

// Unit is the function that computes one unit.
const Unit = "paced_unit"

// ErrNoCompiler says that there is no gcc.
var ErrNoCompiler = errors.New("a guest in C needs gcc")

// An Order is work for a guest.
type Order struct {
	Units      int
	Length     time.Duration // length of a unit
	Rate       int           // units a second
	OwnThreads bool          // each unit has a thread of its own
}

// A Truth is CPU time by the guest's own clocks.
type Truth struct {
	Units   time.Duration
	Threads time.Duration // those that computed them. What the kernel does to end one is missing
	Process time.Duration // since it began
}

// A Guest waits for orders.
type Guest struct {
	cmd *exec.Cmd
	dir string
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts a guest, which ends when ctx does.
func Start(ctx context.Context) (g *Guest, err error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil, ErrNoCompiler
	}
	dir, err := os.MkdirTemp("", "paced-")
	if err != nil {
		return nil, fmt.Errorf("create a directory for a guest: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	program, file := filepath.Join(dir, "paced"), filepath.Join(dir, "guest.c")
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return nil, fmt.Errorf("write a guest: %w", err)
	}
	build := exec.CommandContext(ctx, "gcc", "-O1", "-Wall", "-Werror", "-pthread", "-fno-omit-frame-pointer", "-o",
		program, file)
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile a guest: %w\n%s", err, output)
	}
	g = &Guest{cmd: exec.CommandContext(ctx, program), dir: dir}
	if g.in, err = g.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a guest: %w", err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a guest: %w", err)
	}
	g.out = bufio.NewReader(out)
	if err := g.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a guest: %w", err)
	}
	return g, nil
}

// PID is the guest's process.
func (g *Guest) PID() int { return g.cmd.Process.Pid }

// Do has the guest work, and returns when it is done. Before its first order it measures for some
// milliseconds how fast it is.
func (g *Guest) Do(o Order) (t Truth, err error) {
	own := 0
	if o.OwnThreads {
		own = 1
	}
	if _, err := fmt.Fprintln(g.in, o.Units, o.Length.Nanoseconds(), o.Rate, own); err != nil {
		return t, fmt.Errorf("order units: %w", err)
	}
	if _, err := fmt.Fscan(g.out, &t.Units, &t.Threads, &t.Process); err != nil {
		return t, fmt.Errorf("read what units took: %w", err)
	}
	return t, nil
}

// Close ends the guest.
func (g *Guest) Close() error {
	return errors.Join(g.in.Close(), g.cmd.Wait(), os.RemoveAll(g.dir))
}

// A Measured is what a profile says of a guest.
type Measured struct {
	Samples int64         // with Unit on their stacks, or all
	CPU     time.Duration // CPU time of these samples
}

// Measure adds up the samples of a profile that have a function on their stacks; "" is all.
func Measure(p *pprof.Profile, function string) (m Measured, err error) {
	samples, cpu := -1, -1
	for i, t := range p.SampleType {
		switch t.Type {
		case "samples":
			samples = i
		case "cpu":
			cpu = i
		}
	}
	if samples < 0 || cpu < 0 {
		return m, errors.New("the profile has no CPU time")
	}
	for _, s := range p.Sample {
		if function == "" || has(s, function) {
			m.Samples += s.Value[samples]
			m.CPU += time.Duration(s.Value[cpu])
		}
	}
	return m, nil
}

func has(s *pprof.Sample, function string) bool {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil && line.Function.Name == function {
				return true
			}
		}
	}
	return false
}

// Off is how far b is off a, as a part of it.
func Off(a, b time.Duration) float64 { return float64(b)/float64(a) - 1 }

// Chance is the standard error of a sum of so many samples, as a part of it.
func Chance(samples int64) float64 { return 1 / math.Sqrt(float64(max(samples, 1))) }
