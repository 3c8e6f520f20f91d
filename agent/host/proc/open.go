package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// OpenFile opens a regular file as the process sees it: path is looked up from the process's own
// root directory, and neither "..", symbolic links nor procfs's magic links lead out of it. It is
// ErrDenied if the user of the process could not open it, through each directory and link on the
// way. The file is no larger than limit bytes, but may grow or shrink at any time, as the target
// may write to it: read it with ReadAt and expect to come up short. Mapping it into memory is
// wrong, since a target that truncates it would end the agent with SIGBUS.
//
// Nothing is opened before it is known to be a regular file, so FIFOs cannot block and devices
// cannot act. A file system of the target's making (FUSE) still can: call this through a Pool, and
// read the file there too.
func (r Root) OpenFile(pid int, path string, limit int64) (*os.File, error) {
	return r.asUser(pid, func(user *reader) (*os.File, error) { return r.openIn(pid, path, limit, user) })
}

// OpenPublic opens a regular file of the agent's own root that everybody may read, under the terms
// of OpenFile.
func (r Root) OpenPublic(path string, limit int64) (*os.File, error) {
	return r.openIn(os.Getpid(), path, limit, &reader{everybody: true})
}

// openIn opens a file of a process's root for a user.
func (r Root) openIn(pid int, path string, limit int64, user *reader) (*os.File, error) {
	fd, err := r.find(pid, path, user)
	if err != nil {
		return nil, fmt.Errorf("open %q of process %d: %w", path, pid, err)
	}
	return finish(fd, pid, path, limit, nil, user)
}

// OpenMapped opens the file behind a mapping of the process, under the terms of OpenFile. The
// process could reach the file when it mapped it, so only the file's own permissions count: a user
// may execute a program that only others may read. ErrReplaced says that the path now leads to
// another file, as after a package upgrade.
func (r Root) OpenMapped(pid int, m *Mapping, limit int64) (*os.File, error) {
	if !m.IsFile() {
		return nil, fmt.Errorf("open mapping %q of process %d: %w", m.Path, pid, ErrNotRegular)
	}
	return r.asUser(pid, func(user *reader) (*os.File, error) { return r.openMapped(pid, m, limit, user) })
}

func (r Root) openMapped(pid int, m *Mapping, limit int64, user *reader) (*os.File, error) {
	// The kernel's own link to the mapped file also holds for deleted and replaced files, memfds
	// and changed roots. It takes CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, and the mapping must
	// still have its bounds.
	if fd, err := unix.Open(r.mapLink(pid, m), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		// Whatever else is wrong with the mapped file, its path leads to no better one, and would
		// hide what it is.
		if f, err := finish(fd, pid, m.Path, limit, m, user); !errors.Is(err, ErrReplaced) {
			return f, err
		}
	}
	fd, err := r.find(pid, m.Path, user)
	if err != nil {
		return nil, fmt.Errorf("open mapped %q of process %d: %w", m.Path, pid, err)
	}
	return finish(fd, pid, m.Path, limit, m, user)
}

// StatMapped looks at the file behind a mapping of the process by the kernel's own link to it: see
// OpenMapped for what that takes. It opens nothing, but a file system of the target's making can
// delay it: call this through a Pool.
func (r Root) StatMapped(pid int, m *Mapping) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Stat(r.mapLink(pid, m), &st); err != nil {
		return st, explain(pid, "look at mapped file", err)
	}
	if st.Ino != m.Inode {
		return st, fmt.Errorf("look at mapped %q of process %d: %w", m.Path, pid, ErrReplaced)
	}
	return st, nil
}

// mapLink is the kernel's link to a mapped file: its name is the mapping's bounds.
func (r Root) mapLink(pid int, m *Mapping) string {
	return r.path(pid, "map_files", strconv.FormatUint(m.Start, 16)+"-"+strconv.FormatUint(m.Limit, 16))
}

// find returns an O_PATH descriptor, which names a file without opening it.
func (r Root) find(pid int, path string, user *reader) (int, error) {
	root, err := unix.Open(r.path(pid, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, explain(pid, "open root directory", err)
	}
	defer unix.Close(root)
	fd, err := user.find(root, path)
	return fd, denied(err)
}

// denied names the remedy if the agent itself may not open a file.
func denied(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: grant CAP_DAC_READ_SEARCH, or run as the user of that process", ErrDenied)
	}
	return err
}

// finish opens the file for reading that the O_PATH descriptor fd names, if the user may read it,
// and closes fd. With a mapping, the file must be the mapped one.
func finish(fd, pid int, path string, limit int64, m *Mapping, user *reader) (*os.File, error) {
	defer unix.Close(fd)
	fail := func(err error) (*os.File, error) {
		return nil, fmt.Errorf("open %q of process %d: %w", path, pid, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fail(err)
	}
	if m != nil && !backs(fd, &st, m) {
		return fail(ErrReplaced)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fail(ErrNotRegular)
	}
	if kernels, err := onProcfs(fd); err != nil {
		return fail(err)
	} else if kernels || !user.may(fd, &st, mayRead) {
		return fail(ErrNotOfUser)
	}
	if st.Size > limit {
		return fail(fmt.Errorf("%d bytes, bound is %d: %w", st.Size, limit, ErrTooLarge))
	}
	// The descriptor's own link leads to the very inode that was looked at. O_NONBLOCK keeps a
	// lease of the target from delaying this.
	opened, err := unix.Open(selfPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(denied(err))
	}
	return os.NewFile(uintptr(opened), path), nil
}

// backs reports whether the file is the one behind the mapping. maps shows the device of the file
// that the kernel really maps; stat shows another one on file systems that make up devices:
// overlayfs has one for each mount, btrfs one for each subvolume. There the inode has to do, and a
// file that took the same number in another layer or subvolume passes; a build id distinguishes
// such files.
func backs(fd int, st *unix.Stat_t, m *Mapping) bool {
	if st.Ino != m.Inode {
		return false
	}
	if st.Dev == m.Dev {
		return true
	}
	var sys unix.Statfs_t
	if err := unix.Fstatfs(fd, &sys); err != nil {
		return false
	}
	switch uint32(sys.Type) {
	case unix.OVERLAYFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.BCACHEFS_SUPER_MAGIC:
		return true
	}
	return false
}
