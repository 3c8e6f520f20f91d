package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/kernels/wire"
)

const guestPackage = "github.com/vmprof-agent/vmprof-agent/tests/kernels/guest"

// buildInitramfs compiles the guest's init and the test binaries and packs them, with each
// package's objects and testdata, and the arguments of tests, into an archive at output. dir is
// scratch space. Without packages, what the init runs is on a disk.
func buildInitramfs(ctx context.Context, packages []testPackage, args []string, dir, output string) error {
	f, err := os.Create(output)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	c := &cpio{w: w}
	// The kernel opens the console for init before anything is mounted; the Go runtime wants a null
	// device.
	c.Dir("dev")
	c.CharDevice("dev/console", 5, 1)
	c.CharDevice("dev/null", 1, 3)
	init := filepath.Join(dir, "init")
	if err := compile(ctx, "build", guestPackage, init); err != nil {
		return err
	}
	if err := addFile(c, init, "init"); err != nil {
		return err
	}
	if packages == nil {
		c.Dir(archived(wire.DiskDir))
	}
	c.File(archived(wire.Arguments), 0o644, []byte(strings.Join(args, "\n")))
	c.Dir(archived(wire.ObjectDir))
	c.Dir(archived(wire.TestDir))
	for _, p := range packages {
		for _, object := range p.Objects {
			if err := addFile(c, object, path.Join(archived(wire.ObjectDir), p.ObjectStep(object))); err != nil {
				return err
			}
		}
		if p.HasTest {
			if err := addTest(ctx, c, &p, dir); err != nil {
				return err
			}
		}
	}
	return errors.Join(c.Close(), w.Flush(), f.Close())
}

func addTest(ctx context.Context, c *cpio, p *testPackage, scratch string) error {
	binary := filepath.Join(scratch, p.Step()+".test")
	if err := compile(ctx, "test", p.ImportPath, binary); err != nil {
		return err
	}
	dir := path.Join(archived(wire.TestDir), p.Step())
	c.Dir(dir)
	if err := addFile(c, binary, path.Join(dir, wire.TestBin)); err != nil {
		return err
	}
	testdata := os.DirFS(p.Dir)
	err := fs.WalkDir(testdata, "testdata", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			c.Dir(path.Join(dir, name))
			return nil
		}
		return addFile(c, filepath.Join(p.Dir, name), path.Join(dir, name))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// compile builds one static binary for the emulated machine; verb is build or test.
func compile(ctx context.Context, verb, importPath, output string) error {
	args := []string{verb, "-ldflags=-s -w", "-o", output}
	if verb == "test" {
		args = append(args, "-c")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, importPath)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", importPath, err, out)
	}
	return nil
}

func addFile(c *cpio, from, name string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	c.File(name, uint32(info.Mode().Perm()), data)
	return nil
}

// archived is a path of the guest as the archive names it, relative to the root.
func archived(path string) string { return strings.TrimPrefix(path, "/") }
