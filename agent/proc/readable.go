package proc

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Bits of a mode, of each of the three classes of users.
const (
	mayRead   = 4
	maySearch = 1
)

// checkReadable fails unless the user of a process may read an open file of its root. The agent may read more than that user, and what it
// reads there becomes a name that others see. Modes decide, of the file and of the directories that lead to it; supplementary groups and
// access lists do not count. A process with the ids of several users may read nothing.
func (r Root) checkReadable(pid int, f *os.File) error {
	fail := func(err error) error { return fmt.Errorf("check %q of process %d: %w", f.Name(), pid, err) }
	user, err := r.Status(pid)
	if err != nil {
		return fail(err)
	}
	var file unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &file); err != nil {
		return fail(err)
	}
	if user.Mixed { // whoever started it may have chosen the path
		return fail(ErrDenied)
	}
	if user.UID == 0 || user.UID == file.Uid {
		return nil
	}
	if !permits(&file, user, mayRead) {
		return fail(ErrDenied)
	}
	root, err := unix.Open(r.path(pid, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(root)
	// Where the file really is, without links. It is looked up anew there, so that nothing depends on who made the path.
	path, err := pathOf(int(f.Fd()))
	if err != nil {
		return fail(err)
	}
	top, err := pathOf(root)
	if err != nil {
		return fail(err)
	}
	if top != "/" {
		path = strings.TrimPrefix(path, top)
	}
	for i, c := range path {
		if c != '/' {
			continue
		}
		dir, err := lookAt(root, path[:i+1])
		if err != nil {
			return fail(err)
		}
		if !permits(&dir, user, maySearch) {
			return fail(ErrDenied)
		}
	}
	if found, err := lookAt(root, path); err != nil {
		return fail(err)
	} else if found.Dev != file.Dev || found.Ino != file.Ino {
		return fail(ErrReplaced)
	}
	return nil
}

// permits reports whether a mode lets a user do something.
func permits(st *unix.Stat_t, user Status, what uint32) bool {
	switch {
	case st.Uid == user.UID:
		return st.Mode>>6&what != 0
	case st.Gid == user.GID:
		return st.Mode>>3&what != 0
	}
	return st.Mode&what != 0
}

// pathOf is the path of an open file.
func pathOf(fd int) (string, error) { return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)) }

// lookAt looks at a file below a root directory to which no links lead.
func lookAt(root int, path string) (st unix.Stat_t, err error) {
	fd, err := unix.Openat2(root, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}
