// Package socketfile makes Unix sockets that have a name: one agent has it at a time, and nobody
// can connect before the owner and the mode are those that the user wants.
package socketfile

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/outfile"
)

// An Access says who may connect to a socket.
type Access struct {
	UID, GID int    // its owner and group; -1: those of the agent
	Mode     uint32 // whoever may write to the socket may connect; the umask does not count
}

// Errors that callers distinguish, to name the remedy.
var (
	// ErrInUse: another program answers on the socket, or another agent is about to.
	ErrInUse = errors.New("another agent or program owns it")
	// ErrNotSocket: a file or a link has the name. It is left alone.
	ErrNotSocket = errors.New("it exists and is not a socket")
	// ErrForeign: another user has the name, or the name of the lock. It is left alone.
	ErrForeign = errors.New("it belongs to another user: remove it, or use a directory that only root, or the " +
		"agent's user, can write to")
)

// A Listener is the socket at a path, and the lock on it.
type Listener struct {
	*net.UnixListener
	lock *os.File
}

// Listen takes the socket at path: of the network "unix" or "unixpacket". It replaces a socket that
// a killed agent left behind, and nothing else: none of another user, unless that is the user whom
// access names. A lock file next to it is held for as long as the agent lives. The directory is
// created if only that is missing. In it and in all directories above only the agent's user and
// root may be able to replace what leads to the socket: see outfile.MakeGuardedDir.
func Listen(network, path string, access Access) (_ *Listener, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen on %s: %w", path, err)
		}
	}()
	kind, ok := map[string]int{"unix": unix.SOCK_STREAM, "unixpacket": unix.SOCK_SEQPACKET}[network]
	if !ok {
		return nil, net.UnknownNetworkError(network)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	s := socket{kind: kind, path: path, name: filepath.Base(path)}
	if s.dir, err = outfile.MakeGuardedDir(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	defer unix.Close(s.dir)
	lock, err := s.takeLock()
	if err != nil {
		return nil, err
	}
	l, err := s.listen(access)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &Listener{l, lock}, nil
}

// Close removes the socket and lets others have the path. The lock's file stays: removing it would
// race.
func (l *Listener) Close() error { return errors.Join(l.UnixListener.Close(), l.lock.Close()) }

// A socket is a name in an open directory.
type socket struct {
	dir        int
	kind       int
	path, name string
}

// takeLock takes the lock, which distinguishes a socket that is about to be used from one that a
// killed agent left behind.
func (s *socket) takeLock() (*os.File, error) {
	fd, err := unix.Openat(s.dir, s.name+".lock",
		unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open its lock %s.lock: %w", s.path, err)
	}
	lock := os.NewFile(uintptr(fd), s.path+".lock")
	var st unix.Stat_t
	switch err = unix.Fstat(fd, &st); {
	case err != nil:
	case st.Uid != 0 && int(st.Uid) != os.Geteuid(): // who has it could hold the lock for ever
		err = fmt.Errorf("its lock %s.lock: %w", s.path, ErrForeign)
	default:
		if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// listen makes the socket. Nobody can connect to it before it listens, and then it has its owner
// and mode.
func (s *socket) listen(access Access) (_ *net.UnixListener, err error) {
	if err := s.removeStale(access); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, s.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), s.path)
	defer file.Close() // the listener has one of its own
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: s.path}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Unlinkat(s.dir, s.name, 0)
		}
	}()
	if err := s.permit(access); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, err
	}
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	listener := l.(*net.UnixListener)
	listener.SetUnlinkOnClose(true)
	return listener, nil
}

// permit sets the owner and the mode of the socket that was bound: of what has the name now, and is
// no link.
func (s *socket) permit(access Access) error {
	at, err := unix.Openat(s.dir, s.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return ErrForeign
	}
	// Only its owner may set the mode, so that comes first.
	if err := unix.Chmod("/proc/self/fd/"+strconv.Itoa(at), access.Mode); err != nil {
		return fmt.Errorf("set its mode to %#o: %w", access.Mode, err)
	}
	if access.UID < 0 && access.GID < 0 {
		return nil
	}
	if err := unix.Fchownat(at, "", access.UID, access.GID, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("set its owner and group: %w: run as root, or as a member of the group", err)
	}
	return nil
}

// removeStale removes a socket of the agent's on which nobody listens any more, and nothing else.
func (s *socket) removeStale(access Access) error {
	var st unix.Stat_t
	err := unix.Fstatat(s.dir, s.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return ErrNotSocket
	case int(st.Uid) != os.Geteuid() && int(st.Uid) != access.UID:
		return ErrForeign
	}
	fd, err := unix.Socket(unix.AF_UNIX, s.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: s.path}); !errors.Is(err, unix.ECONNREFUSED) {
		return ErrInUse // also if it has no room for another connection, or is of another kind
	}
	return unix.Unlinkat(s.dir, s.name, 0)
}
