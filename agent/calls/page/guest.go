package page

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const (
	maxPage = 4096 // bytes: sizeof(struct vmprof_page)
	// helloTimeout is how long a connection may stay without a first message.
	helloTimeout = 2 * time.Second
	// maxMessages a second are read of a guest. Its helper thread waits meanwhile, nothing is lost.
	maxMessages = 20_000
	// maxMalformed messages end a connection.
	maxMalformed = 100
)

// A guest is a process that was welcomed.
type guest struct {
	peer   *peer
	serial uint32 // unique among all connections, never 0: what calls carry
	name   string // of the VM, of the guest's making
	code   *codeMap
	page   *ebpf.Map
	probes *attachment
	before time.Duration // CPU time that it had used when it connected
}

// greet answers a new connection's first message: it attaches to the guest's probes and gives it a page. An error that
// is a refusal was told to the guest, or will be by the caller.
func (e *Engine) greet(conn *net.UnixConn, p *peer) (_ *guest, err error) {
	h, err := readHello(conn)
	if err != nil {
		return nil, err
	}
	if h.version != protocol {
		return nil, refusedVersion
	}
	if e.opt.Wanted != nil && !e.opt.Wanted(p.id.PID) {
		return nil, refusedUnwanted
	}
	g := &guest{peer: p, name: h.runtime, code: newCodeMap(h.runtime, &e.bytes)}
	g.before, _ = proc.CPUTime(p.id.PID)
	if err := e.table.reserve(g); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.remove(g)
		}
	}()
	if g.probes, err = e.probes.attach(p.id.PID); err != nil {
		return nil, err
	}
	if err := e.share(g); err != nil {
		return nil, err
	}
	// Probes were attached and the page was announced by pid. If it still is the peer's now, it was all the time.
	if p.gone() {
		return nil, proc.ErrGone
	}
	// The descriptor is the guest's right to that page, and to nothing else.
	_, _, err = conn.WriteMsgUnix(welcomePacket(bpf.PageSlots), unix.UnixRights(g.page.FD()), nil)
	if err != nil {
		return nil, fmt.Errorf("welcome guest: %w", err)
	}
	return g, nil
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

// readPacket reads the next packet into buf. One that is longer comes out empty, which is no message. Descriptors that
// a guest may have sent along are closed by the kernel, as nobody takes them.
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

// share makes g's page and tells the kernel side of g.
func (e *Engine) share(g *guest) (err error) {
	if g.page, err = ebpf.NewMap(e.inner.Copy()); err != nil {
		return fmt.Errorf("make page: %w", err)
	}
	pid := uint32(g.peer.id.PID)
	if err := e.objects.Pages.Put(pid, g.page); err != nil {
		return fmt.Errorf("announce page: %w", err)
	}
	// Last: who is a guest has a page.
	k := bpf.PageGuest{StartTicks: g.peer.id.Ticks(), Serial: g.serial}
	if err := e.objects.PageGuests.Put(pid, &k); err != nil {
		return fmt.Errorf("announce guest: %w", err)
	}
	return nil
}

// hear reads g's registrations until the connection ends.
func (e *Engine) hear(conn *net.UnixConn, g *guest) error {
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
		if !e.take(g, packet) {
			if malformed++; malformed >= maxMalformed {
				return errMessage
			}
		}
		if pause := pace.next(time.Now()); pause > 0 && !e.sleep(pause) {
			return nil
		}
	}
}

// take takes one message. It is false if that is none.
func (e *Engine) take(g *guest, packet []byte) bool {
	m, err := parse(packet)
	var v verdict
	switch m := m.(type) {
	case *method:
		v = g.code.register(m, now())
	case *forget:
		v = g.code.forget(m, now())
	default: // an error, or a second hello
		e.tally.ignored(causeMalformed)
		e.log.Debug("malformed message of a guest", "pid", g.peer.id.PID, "err", err)
		return false
	}
	if v == taken {
		e.tally.message()
	} else {
		e.tally.ignored(string(v))
	}
	return true
}

// now is CLOCK_MONOTONIC in ns, the clock of all events.
func now() uint64 { return uint64(proc.Monotonic()) }
