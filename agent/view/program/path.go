package program

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// CheckPath fails unless path is an absolute path of a program that nobody but root and the agent's
// own user can change or replace: the file and all directories above it belong to one of them, and
// others cannot write to them. A directory such as /tmp is fine if it is sticky.
func CheckPath(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is not an absolute path", path)
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("find the program: %w", err)
	}
	// A link may be changed by whoever may write to its directory, too.
	for _, name := range []string{file, filepath.Clean(path)} {
		if err := checkOwned(name); err != nil {
			return err
		}
	}
	if err := unix.Access(file, unix.X_OK); err != nil {
		return fmt.Errorf("%s cannot be executed: chmod 755 it", file)
	}
	return nil
}

func checkOwned(name string) error {
	for at := name; ; at = filepath.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return fmt.Errorf("check %s: %w", at, err)
		}
		kind := st.Mode & unix.S_IFMT
		sticky := kind == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0 && at != name
		switch {
		case at == name && kind != unix.S_IFREG && kind != unix.S_IFLNK:
			return fmt.Errorf("%s is not a regular file", at)
		case st.Uid != 0 && int(st.Uid) != os.Geteuid():
			return fmt.Errorf("%s belongs to user %d, who could replace the program: chown root it, or put the "+
				"program elsewhere", at, st.Uid)
		case kind != unix.S_IFLNK && st.Mode&(unix.S_IWGRP|unix.S_IWOTH) != 0 && !sticky:
			return fmt.Errorf("others can write to %s and replace the program: chmod go-w it, or put the program "+
				"elsewhere", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}
