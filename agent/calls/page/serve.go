package page

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

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
