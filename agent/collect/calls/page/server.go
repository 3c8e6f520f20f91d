package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds on connections, both accepted ones and those still in the handshake.
const (
	maxConnections = bpf.MaxPageGuests + 64
	maxOfUser      = bpf.MaxPageGuests / 2 // connections of one user, so that no user takes all
)

// A host is the agent's side of a socket for VMs: it accepts them, reads what they register and
// knows who is connected. What they are used for is up to its owner: an Engine, which samples their
// calls, or a Timer.
type host struct {
	log     *slog.Logger
	root    proc.Root
	wanted  func(pid int) bool // nil: all are
	table   *table
	tally   *tally
	bytes   atomic.Int64 // bytes that all processes registered
	owner   owner
	running sync.WaitGroup

	listener *socketfile.Listener
	ctx      context.Context // ends with the host
	stop     context.CancelFunc
}

// An owner of a host. Its methods may be called from several goroutines, for different guests.
type owner interface {
	// admit prepares g and returns the descriptor of its page. release follows, also after an
	// error.
	admit(g *guest) (page int, err error)
	// welcomed is called once g has been sent its page.
	welcomed(conn *net.UnixConn, g *guest) error
	// registered is called after a message of g was accepted, for further use by the owner. It
	// returns false if g should not have sent that message.
	registered(g *guest, message any) bool
	// release frees what admit allocated. g may come from a failed admit.
	release(g *guest)
}

// newHost returns a host that does not listen yet.
func newHost(log *slog.Logger, root proc.Root, wanted func(pid int) bool, owner owner) *host {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &host{log: log, root: root, wanted: wanted, owner: owner, table: newTable(), tally: newTally()}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// listen lets guests connect at path.
func (h *host) listen(path string) (err error) {
	if h.listener, err = listen(path); err != nil {
		return err
	}
	h.running.Go(h.accept)
	return nil
}

// sleep returns false if the host is being closed.
func (h *host) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-h.ctx.Done():
		return false
	}
}

// close ends all connections and waits for all goroutines.
func (h *host) close() error {
	h.stop()
	err := h.listener.Close()
	h.running.Wait()
	return err
}

// accept accepts connections until the host is closed.
func (h *host) accept() {
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := h.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors or memory, most likely.
			h.log.Warn("cannot accept connections of VMs; retrying", "err", err)
			if !h.sleep(time.Second) {
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			h.refuse(conn, refusedFull)
			conn.Close()
			continue
		}
		h.running.Go(func() {
			defer func() { <-slots }()
			err := proc.Catch(func() error {
				h.serve(conn)
				return nil
			})
			if err != nil {
				h.failed(err)
			}
		})
	}
}

// failed counts a panic over one process, whose connection has been closed.
func (h *host) failed(err error) {
	h.tally.refused(causePanic)
	var panicked *proc.PanicError
	if errors.As(err, &panicked) {
		h.log.Error("the agent failed to handle a VM with vmprof.h; please report this", "err", err, "stack",
			string(panicked.Stack))
	}
}

// serve handles one connection from its beginning to its end.
func (h *host) serve(conn *net.UnixConn) {
	unblock := context.AfterFunc(h.ctx, func() { conn.Close() })
	defer unblock()
	defer conn.Close()
	p, err := peerOf(conn, h.root)
	if err != nil {
		h.tally.refused(causePeer)
		h.log.Debug("guest without a peer", "err", err)
		return
	}
	defer p.close()
	if !h.table.enter(p.uid) {
		h.refuse(conn, refusedFull)
		return
	}
	defer h.table.leave(p.uid)
	// A child may hold the connection open after the process itself has ended.
	h.running.Go(func() { p.wait(); conn.Close() })

	g, err := h.greet(conn, p)
	if err != nil {
		h.dismiss(conn, p, err)
		return
	}
	h.tally.accepted()
	h.log.Debug("guest connected", "pid", p.id.PID, "uid", p.uid, "runtime", g.name)
	defer h.remove(g)
	err = h.receive(conn, g)
	h.log.Debug("guest gone", "pid", p.id.PID, "methods", g.code.len(), "err", err)
}

// dismiss ends a connection that was not accepted.
func (h *host) dismiss(conn *net.UnixConn, p *peer, err error) {
	switch {
	case errors.Is(err, proc.ErrGone):
		h.tally.refused(causePeer)
		return
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		err = refusedMalformed // no message at all counts as malformed
	}
	why := refusedProbes
	if !errors.As(err, &why) {
		h.log.Warn("cannot attach to a VM with vmprof.h", "pid", p.id.PID, "err", err)
	}
	h.refuse(conn, why)
}

func (h *host) refuse(conn *net.UnixConn, why refusal) {
	h.tally.refused(refusalNames[why])
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(refusedPacket(why)) // the process may have ended, or notices by itself
}

// remove takes back everything that a process was given.
func (h *host) remove(g *guest) {
	h.owner.release(g)
	g.code.close()
	h.table.release(g)
}

// listen takes the socket at path, which everybody on the machine may connect to: the kernel says
// which process did.
func listen(path string) (*socketfile.Listener, error) {
	l, err := socketfile.Listen("unixpacket", path, socketfile.Access{UID: -1, GID: -1, Mode: 0o666})
	if err != nil {
		return nil, fmt.Errorf("make the socket for VMs: %w; or use another path (--guest-socket)", err)
	}
	return l, nil
}

// A pacer limits messages to rate a second, in every 100 ms.
type pacer struct {
	rate  int
	since time.Time
	n     int
}

// next counts a message and returns how long to wait before the next one is read.
func (p *pacer) next(now time.Time) time.Duration {
	const interval = 100 * time.Millisecond
	if now.Sub(p.since) >= interval {
		p.since, p.n = now, 0
	}
	if p.n++; p.n < p.rate/int(time.Second/interval) {
		return 0
	}
	return p.since.Add(interval).Sub(now)
}
