package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// findGuestSocket says whether an agent that starts now could share pages with guests, and have the
// socket to which they connect. It looks and takes nothing: neither guests nor an agent that has
// the socket, or is about to take it, notice.
func findGuestSocket(env *Env) Result {
	const why = "Calls of VMs with vmprof.h cannot be sampled."
	otherPath := func(first string) string {
		return first + ", or use another path: --guest-socket for record and serve, VMPROF_SOCKET for the VMs."
	}
	if err := env.MapPage(); refused(err) {
		return refusal(env, Info, why)
	} else if err != nil {
		return Result{Info, "a page cannot be shared with VMs: " + err.Error(), why,
			"Raise the memory limit of the agent's cgroup."}
	}
	path := env.GuestSocket
	owner, err := lockOwner(env, path+".lock")
	if err != nil {
		return Result{Info, "cannot find out whether an agent owns the socket for VMs: " + err.Error(), why,
			"Mount procfs, and run as root."}
	}
	if owner != 0 {
		return Result{Info, fmt.Sprintf("process %d owns the socket for VMs, %s", owner, path),
			"Another agent cannot sample calls of VMs with vmprof.h.", otherPath(fmt.Sprintf("End process %d", owner))}
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket == 0 {
		return Result{Info, path + " exists and is not a socket", why, otherPath("Remove it")}
	}
	dir := filepath.Dir(path)
	at, err := writable(dir)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return Result{Info, fmt.Sprintf("cannot create the socket for VMs in %s: %s is not a directory", dir, at), why,
			otherPath("Remove it")}
	case err != nil && at == dir:
		return Result{Info, fmt.Sprintf("cannot create the socket for VMs in %s: %v", dir, err), why,
			otherPath("Run as root or as its owner")}
	case err != nil:
		return Result{Info, fmt.Sprintf("cannot create the directory %s of the socket for VMs: %v", dir, err), why,
			otherPath("Create it and give it to the agent's user (in a systemd unit: RuntimeDirectory=)")}
	case at == dir && closed(dir):
		return Result{Info, fmt.Sprintf("other users cannot enter the directory %s of the socket for VMs", dir),
			"VMs of other users cannot connect.", otherPath("chmod 755 " + dir)}
	}
	return ok("for VMs with vmprof.h, which connect to " + path)
}

// lockOwner returns which process holds a lock on a file, by flock(2); 0 for none. Trying to lock
// the file would be in the way of others, even if only for a moment.
func lockOwner(env *Env, path string) (pid int, err error) {
	var st unix.Stat_t
	err = unix.Stat(path, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return 0, nil
	}
	if err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	f, err := os.Open(filepath.Join(env.Proc.String(), "locks"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// As proc(5) says: "1: FLOCK ADVISORY WRITE 4711 00:1a:123 0 EOF", device numbers in
	// hexadecimal. Those who only wait have an arrow behind the number.
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if field := strings.Fields(lines.Text()); len(field) >= 6 && field[1] == "FLOCK" && field[5] == file {
			return strconv.Atoi(field[4])
		}
	}
	return 0, lines.Err()
}

// writable reports whether files can be made in a directory. If that does not exist, it is about
// the next one above, where it would have to be made. What it is about is returned.
func writable(dir string) (at string, err error) {
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir):
		return writable(filepath.Dir(dir))
	case err != nil:
		return dir, err
	case !st.IsDir():
		return dir, unix.ENOTDIR
	}
	return dir, unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// closed reports whether a directory is closed to users that neither own it nor are in its group.
func closed(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.Mode().Perm()&0o001 == 0
}
