package jvm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// enter runs a program in a root directory: enter ROOT DIRS PROGRAM ARGS, where DIRS is the number
// of following directories that must be visible there at their own paths. It needs a mount
// namespace of its own, so that the mounts end with the program, which gets the shell's pid. A JVM
// finds its libraries through /proc.
const enter = `
root=$1 dirs=$2; shift 2
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs tmpfs "$root/tmp" || exit
while [ "$dirs" -gt 0 ]; do
	mkdir -p "$root$1" && mount --bind "$1" "$root$1" || exit
	dirs=$((dirs - 1)); shift
done
exec chroot "$root" "$@"`

// Process returns the JVM of c, to be started.
func Process(ctx context.Context, c Command) (*exec.Cmd, error) {
	if c.JDK.Root == "" {
		return exec.CommandContext(ctx, c.JDK.Java(), c.arguments()...), nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("start %v in %s: entering another root directory needs root", c.JDK, c.JDK.Root)
	}
	return newRoot(ctx, c)
}

// newRoot returns the JVM of c, to be started in its JDK's root directory.
func newRoot(ctx context.Context, c Command) (*exec.Cmd, error) {
	java, err := filepath.Rel(c.JDK.Root, c.JDK.Java())
	if err != nil {
		return nil, fmt.Errorf("find %v below its root: %w", c.JDK, err)
	}
	dirs := slices.Clone(c.Dirs)
	for _, path := range c.Classpath {
		if isFile(path) {
			path = filepath.Dir(path)
		}
		dirs = append(dirs, path)
	}
	shell := []string{"--mount", "--", "sh", "-c", enter, "enter", c.JDK.Root, fmt.Sprint(len(dirs))}
	return exec.CommandContext(ctx, "unshare", slices.Concat(shell, dirs, []string{"/" + java}, c.arguments())...), nil
}

func (c Command) arguments() []string {
	return slices.Concat(c.Flags, []string{"-classpath", strings.Join(c.Classpath, ":"), c.Main}, c.Args)
}
