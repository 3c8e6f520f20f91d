package guests

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vmprof-agent/vmprof-agent/contrib/guest"
)

//go:embed vm/*.c vm/*.h
var vmSources embed.FS

//go:embed vm/plain/vmprof.h
var plainHeader string // takes the place of contrib/guest/vmprof.h

// ErrNoCompiler says that this machine has no C compiler.
var ErrNoCompiler = errors.New("no C compiler: install gcc and libc6-dev, or clang-19")

// A VM is the reference guest: a small VM with a compiler, made of vm/*.c, that uses
// contrib/guest/vmprof.h and knows its call graph exactly.
type VM struct {
	Path string // the executable
}

// BuildVM compiles the reference guest into dir, with the first C compiler that it finds.
func BuildVM(ctx context.Context, dir string) (VM, error) {
	return buildVMWith(ctx, dir, guest.Header)
}

// BuildPlainVM compiles it without contrib/guest/vmprof.h: it has yieldpoints, and no agent can
// sample its calls.
func BuildPlainVM(ctx context.Context, dir string) (VM, error) {
	return buildVMWith(ctx, dir, plainHeader)
}

func buildVMWith(ctx context.Context, dir, header string) (VM, error) {
	for _, cc := range []string{"cc", "clang-19"} {
		if path, err := exec.LookPath(cc); err == nil {
			return buildVM(ctx, dir, path, header)
		}
	}
	return VM{}, ErrNoCompiler
}

func buildVM(ctx context.Context, dir, cc, header string) (VM, error) {
	files, err := writeVM(dir, header)
	if err != nil {
		return VM{}, fmt.Errorf("write the sources of the reference guest: %w", err)
	}
	vm := VM{Path: filepath.Join(dir, "vm")}
	build := exec.CommandContext(ctx, cc, append([]string{"-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra",
		"-Werror", "-pedantic", "-pthread", "-o", vm.Path}, files...)...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return VM{}, fmt.Errorf("compile the reference guest with %s: %w\n%s", cc, err, out)
	}
	return vm, nil
}

// writeVM writes sources and header into dir, and returns the names of the .c files.
func writeVM(dir, header string) (files []string, err error) {
	if err := os.WriteFile(filepath.Join(dir, "vmprof.h"), []byte(header), 0o644); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(vmSources, "vm")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		text, err := fs.ReadFile(vmSources, "vm/"+entry.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, entry.Name()), text, 0o644); err != nil {
			return nil, err
		}
		if filepath.Ext(entry.Name()) == ".c" {
			files = append(files, entry.Name())
		}
	}
	return files, nil
}
