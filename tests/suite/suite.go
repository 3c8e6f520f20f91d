// Package suite runs real Java programs with fixed input, as guests for measurements.
//
//	guest, err := suite.Start(ctx, jdk, "Xalan")
//	defer guest.Close()
//	iterations, err := guest.Run(10)
//
// An iteration does the same work every time and gives a checksum of its result: one that differs
// says that whoever watched the guest has changed what it does. The programs come from Debian
// packages, as does javac's and Lucene's input, the sources of the JDK.
package suite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

//go:embed java
var sources embed.FS

// Thread is the name of the thread that the programs run on. H2's clients have their own.
const Thread = "suite"

// jarDir is where Debian's packages put their jars.
const jarDir = "/usr/share/java"

// flags bound the guest's memory and make its collections deterministic; scalac needs deep stacks.
var flags = []string{"-XX:+UseSerialGC", "-Xmx1g", "-Xss8m", "-Djava.awt.headless=true"}

// A Guest is a running program of the suite.
type Guest struct {
	*jvm.Guest
	program  Program
	small    bool
	checksum uint64 // checksum of the first iteration
	ran      bool
}

// ErrDisturbed says that an iteration's result was not that of the iterations before, or not the
// known one.
var ErrDisturbed = errors.New("the program's result has changed")

// Start compiles the program if need be, and starts it with extra flags for the JVM. The guest ends
// when ctx is done.
func Start(ctx context.Context, jdk jvm.JDK, name string, extra ...string) (*Guest, error) {
	return start(ctx, jdk, name, false, extra)
}

// StartSmall is like Start, with so little input that all calls of an iteration can be counted: a
// few million.
func StartSmall(ctx context.Context, jdk jvm.JDK, name string, extra ...string) (*Guest, error) {
	return start(ctx, jdk, name, true, extra)
}

func start(ctx context.Context, jdk jvm.JDK, name string, small bool, extra []string) (*Guest, error) {
	program, err := find(name)
	if err != nil {
		return nil, err
	}
	cache, err := jvm.CacheDir()
	if err != nil {
		return nil, err
	}
	jars, err := program.jars()
	if err != nil {
		return nil, err
	}
	java, err := fs.Sub(sources, "java")
	if err != nil {
		return nil, err
	}
	classes, err := jdk.Compile(ctx, jvm.Build{
		Sources: java, Only: program.files(), Release: jvm.MinVersion, Classpath: jars, Cache: cache,
	})
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", name, err)
	}
	flags := slices.Concat(flags, extra)
	if small {
		flags = append(flags, program.small...)
	}
	if program.readsJDK {
		dir, err := jdkSources(ctx, jdk, cache)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-Dsuite.sources="+dir)
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK:       jdk,
		Flags:     flags,
		Classpath: append([]string{classes}, jars...),
		Main:      "suite.Main",
		Args:      []string{name},
	})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Guest{Guest: guest, program: program, small: small && len(program.small) > 0}, nil
}

// An Iteration is what one iteration took, by the guest's own clocks.
type Iteration struct {
	Wall, CPU time.Duration // CPU: of all threads
}

// Run runs so many iterations, and fails if one's checksum is not that of all before.
func (g *Guest) Run(iterations int) ([]Iteration, error) {
	lines, err := g.Order(fmt.Sprintf("run %d", iterations))
	if err != nil {
		return nil, err
	}
	if len(lines) != iterations {
		return nil, fmt.Errorf("run %d iterations: got %d lines", iterations, len(lines))
	}
	ran := make([]Iteration, 0, iterations)
	for _, line := range lines {
		iteration, checksum, err := parse(line)
		if err != nil {
			return nil, err
		}
		if err := g.check(checksum); err != nil {
			return nil, err
		}
		ran = append(ran, iteration)
	}
	return ran, nil
}

// Warmup returns how many iterations it takes until they cost about the same.
func (g *Guest) Warmup() int { return g.program.Warmup }

// RunFor runs whole iterations until that much time has passed, one at least, and returns how many.
func (g *Guest) RunFor(wall time.Duration) (int, error) {
	iterations := 0
	for end := time.Now().Add(wall); iterations == 0 || time.Now().Before(end); iterations++ {
		if _, err := g.Run(1); err != nil {
			return iterations, err
		}
	}
	return iterations, nil
}

// Checksum returns that of all iterations so far; 0 without any.
func (g *Guest) Checksum() uint64 { return g.checksum }

func (g *Guest) check(checksum uint64) error {
	want, known := g.program.knownChecksum()
	switch {
	case known && !g.small && checksum != want:
		return fmt.Errorf("%s: checksum %016x, known is %016x: %w", g.program.Name, checksum, want, ErrDisturbed)
	case g.ran && checksum != g.checksum:
		return fmt.Errorf("%s: checksum %016x after %016x: %w", g.program.Name, checksum, g.checksum, ErrDisturbed)
	}
	g.checksum, g.ran = checksum, true
	return nil
}

// parse reads a line as suite.Main prints it.
func parse(line string) (Iteration, uint64, error) {
	var wall, cpu int64
	var checksum uint64
	if _, err := fmt.Sscanf(line, "iter wall_ns %d cpu_ns %d checksum %x", &wall, &cpu, &checksum); err != nil {
		return Iteration{}, 0, fmt.Errorf("parse %q: %w", line, err)
	}
	return Iteration{Wall: time.Duration(wall), CPU: time.Duration(cpu)}, checksum, nil
}

// jars returns the paths of the program's jars, and names the package of one that is missing.
func (p Program) jars() ([]string, error) {
	var paths []string
	for _, pattern := range p.Jars {
		path, err := jar(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s needs Debian's %s: %w", p.Name, strings.Join(p.Packages, " "), err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// jar returns the first jar that matches.
func jar(pattern string) (string, error) {
	matches, err := filepath.Glob(filepath.Join(jarDir, pattern+".jar"))
	if err == nil && len(matches) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return "", fmt.Errorf("find %s.jar in %s: %w", pattern, jarDir, err)
	}
	return matches[0], nil
}
