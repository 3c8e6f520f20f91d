package page

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultSocket is where guests look for the agent, unless they are told otherwise.
const DefaultSocket = "/run/vmprof-agent/guest.sock"

// A listener is the socket at a path, and the right to have it.
type listener struct {
	*net.UnixListener
	lock *os.File
}

// listen takes the socket at path, which everybody on the machine may connect to. A file beside it is locked for as
// long as the agent lives: so a socket that a killed agent left behind is told from one that is in use.
func listen(path string) (_ *listener, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the socket for VMs: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock guests' socket: %w", err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("another agent owns the socket for VMs, %s: end it, or use another path (--guest-socket)", path)
	} else if err != nil {
		return nil, fmt.Errorf("lock %s.lock: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen for VMs: %w", err)
	}
	// Whoever connects is told apart by what the kernel says of it.
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("open the socket for VMs to all users: %w", err)
	}
	return &listener{l, lock}, nil
}

// removeStale removes a socket that nobody has any more, and nothing else.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the socket for VMs: %w", err)
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket: remove it, or use another path (--guest-socket)", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket of an earlier agent: %w", err)
	}
	return nil
}

// Close removes the socket and lets others have the path. The lock's file stays: removing it would race.
func (l *listener) Close() error {
	return errors.Join(l.UnixListener.Close(), l.lock.Close())
}
