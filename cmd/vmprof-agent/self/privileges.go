package self

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/host/privilege"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// Settle returns what gives up the privileges that are not needed to go on, and to write files at
// the end.
func Settle(files ...string) func() error {
	return func() error {
		keep := append(privilege.Make(privilege.Host()).Keep, toWrite(files)...)
		return privilege.Drop(keep)
	}
}

// toWrite returns the capabilities that the files can only be written with. One that the process
// does not hold is not among them.
func toWrite(files []string) (keep []cap.Value) {
	for _, c := range []cap.Value{cap.DAC_OVERRIDE, cap.FOWNER, cap.CHOWN} {
		if held, err := cap.GetProc().GetFlag(cap.Effective, c); err == nil && held && needsFor(c, files) {
			keep = append(keep, c)
		}
	}
	return keep
}

// needsFor says whether one of the files can only be written with a capability.
func needsFor(c cap.Value, files []string) bool {
	if c == cap.CHOWN { // files are given to the user behind sudo (outfile)
		return len(files) > 0 && os.Getenv("SUDO_UID") != ""
	}
	return privilege.Without(c, func() error {
		for _, file := range files {
			if file == "" || file == sink.Stdout {
				continue
			}
			if err := replaceable(file); err != nil {
				return err
			}
		}
		return nil
	}) != nil
}

// replaceable returns an error if this thread may not make a file, or put another one in its place.
func replaceable(file string) error {
	// A link is replaced itself, wherever it leads (outfile).
	if st, err := os.Lstat(file); err == nil && !st.Mode().IsRegular() && st.Mode().Type() != fs.ModeSymlink {
		return unix.Faccessat(unix.AT_FDCWD, file, unix.W_OK, unix.AT_EACCESS)
	}
	dir := filepath.Dir(file)
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	// In a sticky directory the owner of the file, or of the directory, may replace it, and
	// CAP_FOWNER.
	var parent, old unix.Stat_t
	if err := unix.Lstat(file, &old); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := unix.Stat(dir, &parent); err != nil {
		return err
	}
	me := uint32(os.Geteuid())
	owner, err := cap.GetProc().GetFlag(cap.Effective, cap.FOWNER)
	if parent.Mode&unix.S_ISVTX != 0 && old.Uid != me && parent.Uid != me && (err != nil || !owner) {
		return unix.EPERM
	}
	return nil
}
