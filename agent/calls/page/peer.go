package page

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// A peer is the process at the other end of a connection: the one that connected, whoever has the socket since.
type peer struct {
	id     proc.Identity
	uid    uint32
	handle *os.File // a pidfd: readable when the process has ended
}

// errHidden: the peer is not in the agent's pid namespace.
var errHidden = errors.New("the process is not visible: run the agent in the host's pid namespace")

// peerOf asks the kernel who connected. The pidfd is taken first, so that the pid still means that process if it is
// alive afterwards. Kernels before 6.5 cannot give the one of the socket: there a pid that was used again in between
// is taken for the peer, which gets its new owner nothing but an unused page.
func peerOf(conn *net.UnixConn, root proc.Root) (*peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("ask for peer: %w", err)
	}
	var cred *unix.Ucred
	fd, fdErr := -1, error(nil)
	err = raw.Control(func(sock uintptr) {
		cred, err = unix.GetsockoptUcred(int(sock), unix.SOL_SOCKET, unix.SO_PEERCRED)
		fd, fdErr = unix.GetsockoptInt(int(sock), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err != nil {
		return nil, fmt.Errorf("ask for peer: %w", err)
	}
	if cred == nil || cred.Pid <= 0 {
		return nil, errHidden
	}
	if errors.Is(fdErr, unix.ENOPROTOOPT) {
		fd, fdErr = unix.PidfdOpen(int(cred.Pid), 0)
	}
	if fdErr != nil {
		return nil, fmt.Errorf("open peer %d: %w", cred.Pid, fdErr)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open peer %d: %w", cred.Pid, err)
	}
	p := &peer{uid: cred.Uid, handle: os.NewFile(uintptr(fd), "pidfd")}
	if p.id, err = root.Identify(int(cred.Pid)); err == nil && ended(fd) {
		err = proc.ErrGone
	}
	if err != nil {
		p.handle.Close()
		return nil, err
	}
	return p, nil
}

// ended tells whether the process of a pidfd has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// gone tells whether the process has ended.
func (p *peer) gone() (gone bool) {
	raw, err := p.handle.SyscallConn() // not Fd, which would make reads of it block
	if err == nil {
		err = raw.Control(func(fd uintptr) { gone = ended(int(fd)) })
	}
	return gone || err != nil
}

// wait returns when the process has ended, or close was called.
func (p *peer) wait() {
	raw, err := p.handle.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool { return ended(int(fd)) })
}

func (p *peer) close() { p.handle.Close() }
