package guests

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vmprof-agent/vmprof-agent/contrib/guest"
)

//go:embed audited/audited.c
var auditedSource string

// BuildAudited compiles into dir the guest for audits, whose methods have two versions each, and
// returns its path.
func BuildAudited(ctx context.Context, dir string) (string, error) {
	for _, cc := range []string{"cc", "clang-19"} {
		path, err := exec.LookPath(cc)
		if err != nil {
			continue
		}
		for name, text := range map[string]string{"vmprof.h": guest.Header, "audited.c": auditedSource} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return "", err
			}
		}
		bin := filepath.Join(dir, "audited")
		build := exec.CommandContext(ctx, path, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o",
			bin, "audited.c")
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("compile the guest for audits with %s: %w\n%s", cc, err, out)
		}
		return bin, nil
	}
	return "", ErrNoCompiler
}
