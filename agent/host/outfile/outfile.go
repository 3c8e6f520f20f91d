// Package outfile writes the files that users name: whole or not at all, and never where another
// user led to.
//
// A new file replaces the name itself, even if that is a link. In a directory where everybody may
// create files, such as /tmp, Write refuses names that belong to another user, as shells do under
// fs.protected_regular. OpenDir says which links and directories on the way it refuses.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrForeign is the error for a name that another user may have put where it is, to lead the file
// elsewhere.
var ErrForeign = errors.New("another user may have put it there: choose a directory of your own")

// Write has encode write a file, and gives it its name once it is complete. One that was there
// before stays until then. A new file has the permissions of the file that it replaces, if that is
// the user's own; else those of the umask, but in a directory where everybody may create files it
// is for the user alone. With sudo, a file in a directory of the user behind it is that user's.
// Errors name the remedy.
func Write(path string, encode func(io.Writer) error) (err error) {
	d, err := open(path)
	if err != nil {
		return err
	}
	defer d.close()
	defer func() {
		if err != nil {
			d.discard()
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	if err := encode(d.temp); err != nil {
		return err
	}
	return d.commit()
}

// Check says whether Write to path would fail, as far as this can be known before there is a
// content. It leaves nothing behind.
func Check(path string) error {
	d, err := open(path)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.discard(); err != nil {
		return fmt.Errorf("check that %s can be written: %w", path, err)
	}
	return nil
}

// A destination is a name in a directory, and the file that is going to have it.
type destination struct {
	dir            int // descriptor
	stat           unix.Stat_t
	name, tempName string
	temp           *os.File
	mode           uint32 // mode of the new file
}

// open creates a file next to path that is yet to be written.
func open(path string) (*destination, error) {
	dir, name := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	d := &destination{name: name, tempName: fmt.Sprintf(".vmprof-%016x.tmp", rand.Uint64())}
	var err error
	if d.dir, err = OpenDir(dir); err != nil {
		return nil, refused(path, err)
	}
	if err = unix.Fstat(d.dir, &d.stat); err == nil {
		err = d.look()
	}
	if err == nil {
		var fd int
		// Until it is complete nobody else reads it.
		fd, err = unix.Openat(d.dir, d.tempName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
			0o600)
		if err == nil {
			d.temp = os.NewFile(uintptr(fd), filepath.Join(dir, d.tempName))
			return d, nil
		}
	}
	d.close()
	return nil, refused(path, err)
}

// errNoFile is the error for a name that a device, a pipe or a directory has.
var errNoFile = errors.New("it exists and is not a file: choose another name")

// look finds the mode of the new file, and fails if what has the name must stay.
func (d *destination) look() error {
	d.mode = 0o666 &^ umask()
	if d.shared() {
		d.mode = 0o600
	}
	var old unix.Stat_t
	err := unix.Fstatat(d.dir, d.name, &old, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case d.shared() && !own(old.Uid):
		return fmt.Errorf("the name is in use by the user %s, in a directory where everybody may create files: %w",
			username(old.Uid), ErrForeign)
	case old.Mode&unix.S_IFMT == unix.S_IFREG:
		if own(old.Uid) {
			d.mode = old.Mode & 0o666
		}
		return nil
	case old.Mode&unix.S_IFMT == unix.S_IFLNK: // it is replaced, unless it leads to more than a file: /dev/stdout does
		var behind unix.Stat_t
		if err := unix.Fstatat(d.dir, d.name, &behind, 0); err != nil || behind.Mode&unix.S_IFMT == unix.S_IFREG {
			return nil
		}
	}
	return errNoFile
}

// shared reports whether everybody may create files in the directory.
func (d *destination) shared() bool { return everybodys(&d.stat) }

// commit gives the file its name.
func (d *destination) commit() error {
	fd := int(d.temp.Fd())
	if uid, gid, ok := behindSudo(); ok && d.stat.Uid == uid {
		if err := unix.Fchown(fd, int(uid), int(gid)); err != nil {
			return fmt.Errorf("give it to the user %d: %w", uid, err)
		}
	}
	if err := unix.Fchmod(fd, d.mode); err != nil && !errors.Is(err, unix.EPERM) { // a file system without modes
		return err
	}
	// Without Sync a crash of the machine may leave the new name with no content.
	if err := d.temp.Sync(); err != nil {
		return err
	}
	if err := d.temp.Close(); err != nil {
		return err
	}
	return unix.Renameat(d.dir, d.tempName, d.dir, d.name)
}

// discard removes the file that is not complete.
func (d *destination) discard() error {
	d.temp.Close() // again, if it was Close that failed: harmless
	return unix.Unlinkat(d.dir, d.tempName, 0)
}

func (d *destination) close() { unix.Close(d.dir) }

// everybodys reports whether everybody may create files in a directory, but only remove one's own.
func everybodys(dir *unix.Stat_t) bool { return dir.Mode&unix.S_ISVTX != 0 && dir.Mode&0o002 != 0 }

// own reports whether files of that user are one's own: also those of the user behind sudo.
func own(uid uint32) bool {
	behind, _, ok := behindSudo()
	return int(uid) == os.Geteuid() || ok && uid == behind
}

// behindSudo is the user who has become root with sudo. ok is false if there is none.
func behindSudo() (uid, gid uint32, ok bool) {
	if os.Geteuid() != 0 {
		return 0, 0, false
	}
	u, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	g, gerr := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	return uint32(u), uint32(g), err == nil && gerr == nil
}

// umask is that of the process. Setting it is the only way to ask for it that does not depend on
// procfs; nothing else sets it.
func umask() uint32 {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return uint32(mask)
}

// refused says what to do about an output that cannot be created.
func refused(path string, err error) error {
	dir := filepath.Dir(path)
	_, missing := os.Stat(dir)
	switch {
	case errors.Is(err, ErrForeign), errors.Is(err, errNoFile):
		return fmt.Errorf("output %s: %w", path, err)
	case errors.Is(err, fs.ErrNotExist) && missing == nil: // as in /proc
		return fmt.Errorf("output %s: files cannot be created in %s: choose another directory: %w", path, dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("output %s: directory %s does not exist: create it, or choose another: %w", path, dir,
			fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("output %s: files cannot be created in %s: choose a directory of your own: %w", path, dir,
			fs.ErrPermission)
	}
	return fmt.Errorf("output %s: create a file in %s: %w", path, dir, err)
}

// username is a user's name, or the number of one without a name.
func username(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
