// Package binary builds the programs that live tests start: the agent, and guests in Go.
package binary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// Built is the environment variable with a directory of programs that were built earlier, for
// machines without a compiler: each is a file named as the last element of its import path.
const Built = "VMPROF_BUILT"

// Build builds the program of an import path into dir, without cgo as the agent is released, or
// copies it from the directory named by Built. It returns the program's path.
func Build(ctx context.Context, importPath, dir string) (string, error) {
	program := filepath.Join(dir, path.Base(importPath))
	if built := os.Getenv(Built); built != "" {
		data, err := os.ReadFile(filepath.Join(built, path.Base(importPath)))
		if err != nil {
			return "", fmt.Errorf("copy what was built before (%s): %w", Built, err)
		}
		return program, os.WriteFile(program, data, 0o755)
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, importPath)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", path.Base(importPath), err, output)
	}
	return program, nil
}
