package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Bounds on connections, those that were welcomed and those that were not yet.
const (
	maxConnections = bpf.MaxPageGuests + 64
	maxOfUser      = bpf.MaxPageGuests / 2 // of one user, so that nobody takes all
)

// accept greets guests until the engine is closed.
func (e *Engine) accept() {
	slots := make(chan struct{}, maxConnections)
	for {
		conn, err := e.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors or memory, most likely.
			e.log.Warn("cannot accept connections of VMs; retrying", "err", err)
			if !e.sleep(time.Second) {
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			e.refuse(conn, refusedFull)
			conn.Close()
			continue
		}
		e.running.Go(func() {
			defer func() { <-slots }()
			err := proc.Catch(func() error {
				e.serve(conn)
				return nil
			})
			if err != nil {
				e.failed(err)
			}
		})
	}
}

// failed counts a panic over one guest, whose connection has been closed.
func (e *Engine) failed(err error) {
	e.tally.refused(causePanic)
	var panicked *proc.PanicError
	if errors.As(err, &panicked) {
		e.log.Error("the agent failed to handle a VM with vmprof.h; please report this", "err", err, "stack", string(panicked.Stack))
	}
}

// serve is with one connection from its beginning to its end.
func (e *Engine) serve(conn *net.UnixConn) {
	unblock := context.AfterFunc(e.ctx, func() { conn.Close() })
	defer unblock()
	defer conn.Close()
	p, err := peerOf(conn, e.opt.Proc)
	if err != nil {
		e.tally.refused(causePeer)
		e.log.Debug("guest without a peer", "err", err)
		return
	}
	defer p.close()
	if !e.table.enter(p.uid) {
		e.refuse(conn, refusedFull)
		return
	}
	defer e.table.leave(p.uid)
	// A child may hold the connection open when the guest itself is gone.
	e.running.Go(func() { p.wait(); conn.Close() })

	g, err := e.greet(conn, p)
	if err != nil {
		e.dismiss(conn, p, err)
		return
	}
	e.tally.accepted()
	e.log.Debug("guest connected", "pid", p.id.PID, "uid", p.uid, "runtime", g.name)
	defer e.remove(g)
	err = e.hear(conn, g)
	e.log.Debug("guest gone", "pid", p.id.PID, "methods", g.code.len(), "err", err)
}

// dismiss ends a connection that was not welcomed.
func (e *Engine) dismiss(conn *net.UnixConn, p *peer, err error) {
	switch {
	case errors.Is(err, proc.ErrGone):
		e.tally.refused(causePeer)
		return
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		err = refusedMalformed // no message is none either
	}
	why := refusedProbes
	if !errors.As(err, &why) {
		e.log.Warn("cannot attach to a VM with vmprof.h", "pid", p.id.PID, "err", err)
	}
	e.refuse(conn, why)
}

func (e *Engine) refuse(conn *net.UnixConn, why refusal) {
	e.tally.refused(refusalNames[why])
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(refusedPacket(why)) // the guest may be gone, or find out by itself
}

// remove takes everything back that a guest was given.
func (e *Engine) remove(g *guest) {
	pid := uint32(g.peer.id.PID)
	if g.page != nil {
		_ = e.objects.PageGuests.Delete(pid)
		_ = e.objects.Pages.Delete(pid)
		// It stays the guest's, but nothing in it is armed.
		_ = g.page.Put(uint32(0), &bpf.Page{})
		g.page.Close()
	}
	if g.probes != nil {
		g.probes.close()
	}
	g.code.close()
	e.table.release(g)
}

// A listener is the socket at a path, and the right to have it.
type listener struct {
	*net.UnixListener
	lock *os.File
}

// listen takes the socket at path, which everybody on the machine may connect to. A lock file next to it is held for as
// long as the agent lives. It distinguishes a socket in use from one that a killed agent left behind.
func listen(path string) (_ *listener, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of the socket for VMs: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the socket for VMs: %w", err)
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
	// Everybody may connect: the kernel says which process did.
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

// A pacer says how long to wait between messages, so that there are no more than rate a second, in every 100 ms.
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
