package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A testPackage is a Go package with something for the kernel: tests that need no guest, or BPF
// objects. Tests load their package's objects as the agent does; an emulated processor takes
// seconds to verify some programs, so that the rig loads only objects without such tests.
type testPackage struct {
	ImportPath, Dir           string
	TestGoFiles, XTestGoFiles []string

	HasTest bool
	Objects []string // without tests: paths of what bpf2go generated for this architecture
}

// Step names the step that runs the package's tests: its path below the module, flattened.
func (p *testPackage) Step() string {
	_, rel, _ := strings.Cut(p.ImportPath, "/vmprof-agent/vmprof-agent/")
	return strings.ReplaceAll(rel, "/", "_")
}

// objectSuffix is how bpf2go ends the names of little-endian objects for amd64.
const objectSuffix = "_x86_bpfel.o"

// ObjectStep names the step that loads one of the package's objects.
func (p *testPackage) ObjectStep(object string) string {
	return p.Step() + "_" + strings.TrimSuffix(filepath.Base(object), objectSuffix) + ".o"
}

// findPackages returns the packages among patterns that have something for the kernel, so that no
// list must be maintained, or those that have a test at all.
func findPackages(ctx context.Context, patterns []string, all bool) ([]testPackage, error) {
	args := append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("list packages: %w\n%s", err, exit.Stderr)
	} else if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var found []testPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p testPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		if all {
			p.HasTest = p.TestGoFiles != nil || p.XTestGoFiles != nil
		} else if err := p.inspect(); err != nil {
			return nil, fmt.Errorf("inspect %s: %w", p.ImportPath, err)
		}
		if p.HasTest || p.Objects != nil {
			found = append(found, p)
		}
	}
}

var kernelTest = regexp.MustCompile(`(?m)^func TestKernel[A-Z0-9_]`)

// inspect finds the package's tests and objects.
func (p *testPackage) inspect() (err error) {
	for _, files := range [][]string{p.TestGoFiles, p.XTestGoFiles} {
		for _, name := range files {
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return err
			}
			p.HasTest = p.HasTest || kernelTest.Match(src)
		}
	}
	if p.HasTest {
		return nil
	}
	p.Objects, err = filepath.Glob(filepath.Join(p.Dir, "*"+objectSuffix))
	return err
}
