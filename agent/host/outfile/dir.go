package outfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the links that lead to a directory, as the kernel does (MAXSYMLINKS of
// include/linux/namei.h).
const maxLinks = 40

// OpenDir opens a directory for files to be created there, as a descriptor with O_PATH. Other users
// cannot lead it elsewhere, whatever fs.protected_symlinks says: it follows a link only if both the
// link and the directory with the link are the caller's or root's, and if not everybody may replace
// the link. Where everybody may create files it enters only directories of the caller and of root.
// The caller closes the descriptor.
func OpenDir(path string) (int, error) { return walkTo(path, passable, 0, 0) }

// MakeDir makes a directory with that mode, less the umask, unless there is one. It is found as by
// OpenDir. With parents it also makes those that are missing above. The caller closes the
// descriptor, which has O_PATH.
func MakeDir(path string, mode uint32, parents bool) (int, error) {
	if parents {
		return walkTo(path, passable, mode, makesAll)
	}
	return walkTo(path, passable, mode, makesLast)
}

// MakeGuardedDir is MakeDir for a directory in which nobody but the user of this process and root
// can replace files, and which nobody else can replace: all directories on the way are like that.
// Otherwise the error is ErrReplaceable.
func MakeGuardedDir(path string, mode uint32) (int, error) {
	return walkTo(path, guarded, mode, makesLast)
}

// ErrReplaceable is the error for a directory on the way in which others can replace what leads on.
var ErrReplaceable = errors.New("other users can replace what is in it: use directories that only root, or the " +
	"agent's user, can write to")

// Which missing directories are made.
const (
	makesLast = 1 + iota
	makesAll
)

func walkTo(path string, rule func(dir, entry *unix.Stat_t) error, mode uint32, makes int) (int, error) {
	w := walk{at: unix.AT_FDCWD, rest: path, rule: rule, mode: mode, makes: makes}
	err := w.look()
	for w.rest != "" && err == nil {
		err = w.step()
	}
	if err != nil {
		w.close()
		return -1, err
	}
	return w.at, nil
}

// passable is the rule for outputs: see OpenDir.
func passable(dir, entry *unix.Stat_t) error {
	if entry == nil {
		return nil
	}
	trusted := func(uid uint32) bool { return uid == 0 || own(uid) }
	everybodys := dir.Mode&unix.S_IWOTH != 0
	switch {
	case !trusted(entry.Uid) && (everybodys || isLink(entry)):
	case isLink(entry) && !trusted(dir.Uid):
	// Others may have renamed it, or given it this name as well.
	case isLink(entry) && everybodys && (dir.Mode&unix.S_ISVTX == 0 || entry.Nlink > 1):
	default:
		return nil
	}
	return ErrForeign
}

// guarded is the rule for sockets: see MakeGuardedDir.
func guarded(dir, entry *unix.Stat_t) error {
	trusted := func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }
	switch others := dir.Mode & (unix.S_IWGRP | unix.S_IWOTH); {
	case !trusted(dir.Uid), others != 0 && dir.Mode&unix.S_ISVTX == 0:
		return ErrReplaceable
	case entry == nil:
		return nil
	case !trusted(entry.Uid), isLink(entry) && others != 0 && entry.Nlink > 1:
		return ErrForeign
	}
	return nil
}

func isLink(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// A walk is a path of which each component is looked at where it really is.
type walk struct {
	at    int    // the directory that is reached: a descriptor with O_PATH, or AT_FDCWD
	path  string // path of that directory, for errors
	dir   unix.Stat_t
	rest  string
	links int

	// rule checks an entry of a directory, and the directory itself: then there is no entry.
	rule  func(dir, entry *unix.Stat_t) error
	mode  uint32 // mode of what is made
	makes int
}

// step goes on by one component.
func (w *walk) step() error {
	if strings.HasPrefix(w.rest, "/") {
		w.rest = strings.TrimLeft(w.rest, "/")
		fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return w.enter(fd, "/")
	}
	name, rest, _ := strings.Cut(w.rest, "/")
	w.rest = strings.TrimLeft(rest, "/")
	if name == "" {
		return nil
	}
	path := filepath.Join(w.path, name)
	fd, err := w.openEntry(name)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", path, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && name != "." && name != ".." {
		err = w.rule(&w.dir, &st)
	}
	link := isLink(&st)
	switch {
	case err != nil && link:
		err = fmt.Errorf("%s is a link of the user %s: %w", path, username(st.Uid), err)
	case err != nil:
		err = fmt.Errorf("%s is a directory of the user %s: %w", path, username(st.Uid), err)
	case link:
		err = w.follow(fd, path)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return w.enter(fd, path)
	default:
		err = fmt.Errorf("open directory %s: %w", path, unix.ENOTDIR)
	}
	unix.Close(fd)
	return err
}

// openEntry opens what has a name in the directory, and makes a directory if nothing has and that
// is wanted.
func (w *walk) openEntry(name string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(w.at, name, flags, 0)
	if !errors.Is(err, unix.ENOENT) || w.makes == 0 || w.makes == makesLast && w.rest != "" {
		return fd, err
	}
	if err := unix.Mkdirat(w.at, name, w.mode); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return unix.Openat(w.at, name, flags, 0)
}

// follow puts a link's target in front of the rest of the path.
func (w *walk) follow(fd int, path string) error {
	var sys unix.Statfs_t
	if err := unix.Fstatfs(fd, &sys); err != nil {
		return err
	} else if sys.Type == unix.PROC_SUPER_MAGIC { // it may lead to where its text does not
		return fmt.Errorf("%s is a link of procfs, which is not followed: choose another directory", path)
	}
	if w.links++; w.links > maxLinks {
		return unix.ELOOP
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return err
	}
	if w.rest = strings.TrimSuffix(string(target[:n])+"/"+w.rest, "/"); len(w.rest) > maxLinks*unix.PathMax {
		return unix.ENAMETOOLONG
	}
	return nil
}

// enter goes on from a directory.
func (w *walk) enter(fd int, path string) error {
	w.close()
	w.at, w.path = fd, path
	return w.look()
}

// look looks at the directory that is reached.
func (w *walk) look() error {
	if err := unix.Fstatat(w.at, ".", &w.dir, 0); err != nil {
		return err
	}
	if w.at == unix.AT_FDCWD && strings.HasPrefix(w.rest, "/") {
		return nil // the walk does not begin there
	}
	if err := w.rule(&w.dir, nil); err != nil {
		return fmt.Errorf("directory %s: %w", filepath.Clean(w.path), err)
	}
	return nil
}

func (w *walk) close() {
	if w.at != unix.AT_FDCWD {
		unix.Close(w.at)
		w.at = unix.AT_FDCWD
	}
}
