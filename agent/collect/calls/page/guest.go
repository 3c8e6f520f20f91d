package page

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const (
	maxPage = 4096 // bytes: sizeof(struct vmprof_page)
	// helloTimeout is how long a connection may stay without a first message.
	helloTimeout = 2 * time.Second
	// maxMessages is how many messages a second are read from a process. Its helper thread waits
	// meanwhile; nothing is lost.
	maxMessages = 20_000
	// maxMalformed is the number of malformed messages that ends a connection.
	maxMalformed = 100
)

// A guest is a process whose connection was accepted.
type guest struct {
	peer   *peer
	serial uint32 // unique among all connections, never 0: what calls carry
	name   string // name of the VM, chosen by the process
	code   *codeMap

	// Used by an Engine.
	page   *ebpf.Map
	probes *attachment
	// Used by a Timer.
	timed *timed
}

// greet answers a new connection's first message: it attaches to the process's probes and gives it
// a page. If the error is a refusal, the process has been sent it, or the caller sends it.
func (h *host) greet(conn *net.UnixConn, p *peer) (_ *guest, err error) {
	said, err := readHello(conn)
	if err != nil {
		return nil, err
	}
	if said.version != protocol {
		return nil, refusedVersion
	}
	if h.wanted != nil && !h.wanted(p.id.PID) {
		return nil, refusedUnwanted
	}
	g := &guest{peer: p, name: said.runtime, code: newCodeMap(said.runtime, &h.bytes)}
	if err := h.table.reserve(g); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.remove(g)
		}
	}()
	page, err := h.owner.admit(g)
	if err != nil {
		return nil, err
	}
	// All of the above used the pid. If it still is the peer's now, it was so all the time.
	if p.gone() {
		return nil, proc.ErrGone
	}
	// The descriptor gives the process access to that page, and to nothing else.
	_, _, err = conn.WriteMsgUnix(welcomePacket(bpf.PageSlots), unix.UnixRights(page), nil)
	if err != nil {
		return nil, fmt.Errorf("send WELCOME to the VM: %w", err)
	}
	return g, h.owner.welcomed(conn, g)
}

func readHello(conn *net.UnixConn) (*hello, error) {
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, err
	}
	packet, err := readPacket(conn, make([]byte, maxPacket))
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	m, err := parse(packet)
	h, ok := m.(*hello)
	if err != nil || !ok {
		return nil, refusedMalformed
	}
	return h, nil
}

// readPacket reads the next packet into buf. A longer one comes out empty, which is not a valid
// message. The kernel closes descriptors that a process may have sent along, as nobody receives
// them.
func readPacket(conn *net.UnixConn, buf []byte) ([]byte, error) {
	n, _, flags, _, err := conn.ReadMsgUnix(buf, nil)
	if err != nil {
		return nil, err
	}
	if flags&unix.MSG_TRUNC != 0 {
		n = 0
	}
	return buf[:n], nil
}

// receive reads g's registrations until the connection ends.
func (h *host) receive(conn *net.UnixConn, g *guest) error {
	buf := make([]byte, maxPacket)
	pace := pacer{rate: maxMessages}
	for malformed := 0; ; {
		packet, err := readPacket(conn, buf)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if !h.take(g, packet) {
			if malformed++; malformed >= maxMalformed {
				return errMessage
			}
		}
		if pause := pace.next(time.Now()); pause > 0 && !h.sleep(pause) {
			return nil
		}
	}
}

// take handles one message. It returns false if the message is not valid.
func (h *host) take(g *guest, packet []byte) bool {
	message, err := parse(packet)
	var v verdict
	switch m := message.(type) {
	case *method:
		v = g.code.register(m, now())
	case *forget:
		v = g.code.forget(m, now())
	case *named:
	default: // an error, or a second hello
		message = nil
	}
	if v == taken && (message == nil || !h.owner.registered(g, message)) {
		h.tally.ignored(causeMalformed)
		h.log.Debug("malformed message of a guest", "pid", g.peer.id.PID, "err", err)
		return false
	}
	if v == taken {
		h.tally.message()
	} else {
		h.tally.ignored(string(v))
	}
	return true
}

// now is CLOCK_MONOTONIC in ns, the clock of all events.
func now() uint64 { return uint64(proc.Monotonic()) }

// A peer is the process at the other end of a connection: the one that connected, even if another
// process has the socket since.
type peer struct {
	id     proc.Identity
	uid    uint32
	handle *os.File // a pidfd: readable when the process has ended
}

// errHidden: the peer is not in the agent's pid namespace.
var errHidden = errors.New("the process is not visible: run the agent in the host's pid namespace")

// peerOf asks the kernel who connected. The pidfd is opened first: if it is alive afterwards, the
// pid still means that process. Kernels before 6.5 have no pidfd of a socket: if a pid was reused
// in between, its new owner is taken for the peer, which gives it nothing but an unused page.
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

// ended reports whether the process of a pidfd has ended.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// gone reports whether the process has ended.
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
