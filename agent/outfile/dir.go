package outfile

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the links that lead to a directory, as the kernel does (MAXSYMLINKS of include/linux/namei.h).
const maxLinks = 40

// OpenDir opens a directory, as a descriptor with O_PATH. It follows no link of another user in a directory where everybody may create files, whatever fs.protected_symlinks
// says. The caller closes the descriptor.
func OpenDir(path string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	w := walk{at: unix.AT_FDCWD, rest: path}
	for w.rest != "" {
		if err := w.step(); err != nil {
			w.close()
			return 0, err
		}
	}
	return w.at, nil
}

// A walk is a path of which each component is looked at where it really is.
type walk struct {
	at    int // the directory that is reached: a descriptor with O_PATH, or AT_FDCWD
	rest  string
	links int
}

// step goes on by one component.
func (w *walk) step() error {
	if strings.HasPrefix(w.rest, "/") {
		w.rest = strings.TrimLeft(w.rest, "/")
		return w.enter("/")
	}
	name, rest, _ := strings.Cut(w.rest, "/")
	w.rest = strings.TrimLeft(rest, "/")
	if name == "" {
		return nil
	}
	fd, err := unix.Openat(w.at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		w.close()
		w.at = fd
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			err = unix.ENOTDIR
		}
		return err
	}
	defer unix.Close(fd)
	var dir unix.Stat_t
	if err := unix.Fstatat(w.at, ".", &dir, 0); err != nil {
		return err
	}
	if everybodys(&dir) && !own(st.Uid) && st.Uid != dir.Uid {
		return fmt.Errorf("%s is a link of the user %s: %w", name, username(st.Uid), ErrForeign)
	}
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return err
	}
	if w.rest = string(target[:n]) + "/" + w.rest; len(w.rest) > maxLinks*unix.PathMax {
		return unix.ENAMETOOLONG
	}
	return nil
}

// enter goes to a directory that is no link.
func (w *walk) enter(name string) error {
	fd, err := unix.Openat(w.at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.close()
	w.at = fd
	return nil
}

func (w *walk) close() {
	if w.at != unix.AT_FDCWD {
		unix.Close(w.at)
		w.at = unix.AT_FDCWD
	}
}
