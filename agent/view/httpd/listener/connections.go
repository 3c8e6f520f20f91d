package listener

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxConnections is how many connections there are at once that have sent a request.
	maxConnections = 256
	// spareConnections are beyond: of these only questions about the agent's health are answered,
	// and half of them are kept for these.
	spareConnections = 16
	// maxSilent is how many connections there are that have not sent a whole request yet. They cost
	// little: no more than their descriptors.
	maxSilent = 1024
	// Patience is for how long an answer is sent before its connection may be closed for others.
	Patience = time.Second
	// headerTimeout is how long a client may take to send the header of a request.
	headerTimeout = 10 * time.Second
)

// connections are those of a Listener. The server gets one when its first request has arrived, so
// that clients that ask nothing take no place. If too many have not asked, the oldest is closed. If
// too many have asked, the one that has waited longest for a further request is closed, or else the
// one that an answer is sent to for the longest time. One whose request is yet to be answered is
// never closed for others.
type connections struct {
	tls bool // requests are encrypted: a connection has asked when it has sent something

	mu     sync.Mutex
	silent list.List // holds *connection, the oldest first
	open   map[*connection]struct{}
	free   sync.Cond // one fewer, or one that waits
	closed bool
}

func newConnections(tls bool) *connections {
	c := &connections{tls: tls, open: map[*connection]struct{}{}}
	c.free.L = &c.mu
	return c
}

// A connection is one of so many.
type connection struct {
	net.Conn
	of       *connections
	silent   *list.Element // while it is one of these
	arrived  bool          // a whole request
	spare    bool
	requests int       // requests that are being answered
	asked    bool      // at least once
	waits    time.Time // for a request, since then, if there is none
	sends    time.Time // an answer, since then, if there is a request
}

// enter makes room for a connection that was accepted and has not asked yet. It waits until there
// is some.
func (c *connections) enter(conn net.Conn) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.silent.Len() >= maxSilent && !c.closed {
		if oldest := c.oldestSilent(); oldest != nil {
			c.leave(oldest)
			oldest.Conn.Close()
		} else {
			c.free.Wait()
		}
	}
	entered := &connection{Conn: conn, of: c, waits: time.Now()}
	if entered.silent = c.silent.PushBack(entered); c.closed {
		conn.Close()
	}
	return entered
}

// oldestSilent is the oldest connection whose request has not arrived, nil if all have; mu is held.
func (c *connections) oldestSilent() *connection {
	for e := c.silent.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*connection); !conn.arrived && !conn.look() {
			return conn
		}
	}
	return nil
}

// leave notes that a connection is no more one of the silent ones; mu is held.
func (c *connections) leave(conn *connection) {
	if conn.silent != nil {
		c.silent.Remove(conn.silent)
		conn.silent = nil
		c.free.Broadcast()
	}
}

// add makes room for a connection that has asked, and waits until there is some.
func (c *connections) add(added *connection, health bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.leave(added)
	added.arrived = true
	spare := spareConnections
	if !health {
		spare /= 2
	}
	for len(c.open) >= maxConnections && !c.closed {
		victim := c.longestWaiting()
		if victim == nil {
			victim = c.longestSending()
		}
		if victim != nil {
			delete(c.open, victim)
			victim.Conn.Close()
		} else if len(c.open) < maxConnections+spare {
			added.spare = true
			break
		} else {
			again := time.AfterFunc(Patience, c.free.Broadcast) // one may have been sent to for too long by then
			c.free.Wait()
			again.Stop()
		}
	}
	added.waits = time.Now()
	c.open[added] = struct{}{}
}

// firstRequest is how long a new connection with TLS may wait while others that have asked wait as
// well.
const firstRequest = time.Second

// longestWaiting is the connection that has waited longest for a request, of new ones only if all
// are new, and nil if all are being answered.
func (c *connections) longestWaiting() (longest *connection) {
	now := time.Now()
	isNew := func(conn *connection) bool { return !conn.asked && now.Sub(conn.waits) < firstRequest }
	for conn := range c.open {
		switch {
		case conn.requests > 0, !conn.asked && !c.tls:
		case longest == nil || isNew(longest) && !isNew(conn):
			longest = conn
		case isNew(longest) == isNew(conn) && conn.waits.Before(longest.waits):
			longest = conn
		}
	}
	return longest
}

// longestSending is the connection that has been sent an answer for longest, nil if for none that
// took too long.
func (c *connections) longestSending() (longest *connection) {
	latest := time.Now().Add(-Patience)
	for conn := range c.open {
		if conn.requests > 0 && !conn.sends.IsZero() && conn.sends.Before(latest) {
			longest, latest = conn, conn.sends
		}
	}
	return longest
}

// Write notes since when an answer is sent. With TLS, which may be HTTP/2, that is since when this
// part of it is: other answers may be under way.
func (conn *connection) Write(p []byte) (int, error) {
	conn.of.mu.Lock()
	if conn.sends.IsZero() || conn.of.tls {
		conn.sends = time.Now()
	}
	conn.of.mu.Unlock()
	n, err := conn.Conn.Write(p)
	if conn.of.tls {
		conn.of.mu.Lock()
		conn.sends = time.Time{}
		conn.of.mu.Unlock()
	}
	return n, err
}

// close closes the connections that the server does not have yet.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for e := c.silent.Front(); e != nil; e = e.Next() {
		e.Value.(*connection).Conn.Close()
	}
	c.free.Broadcast()
}

// Close closes the connection and makes room for another.
func (conn *connection) Close() error {
	conn.of.mu.Lock()
	defer conn.of.mu.Unlock()
	conn.of.leave(conn)
	delete(conn.of.open, conn)
	conn.of.free.Broadcast()
	return conn.Conn.Close()
}

// answer notes that a request is being answered, or no more.
func (conn *connection) answer(requests int) {
	conn.of.mu.Lock()
	defer conn.of.mu.Unlock()
	if conn.asked = true; conn.requests == 0 {
		conn.sends = time.Time{}
	}
	if conn.requests += requests; conn.requests == 0 {
		conn.waits = time.Now()
		conn.of.free.Broadcast()
	}
}

// maxFirst is as much as the server reads of a header, with what its buffers have in addition to
// MaxHeaderBytes.
const maxFirst = maxHeaderBytes + 4<<10

// What has arrived on a connection, none of which was read yet.
type arrival struct {
	request bool // a whole one, or as much as the server reads; with TLS anything
	health  bool // it is one about the agent's health, or may be
	ended   bool // nothing will come
}

var firstBytes = sync.Pool{New: func() any { return new([maxFirst]byte) }}

// await waits for the first request, for as long as a header may take.
func (conn *connection) await() (a arrival) {
	raw, err := rawConn(conn.Conn)
	if err != nil {
		return arrival{ended: true}
	}
	_ = conn.SetReadDeadline(time.Now().Add(headerTimeout)) // fails only if it is closed
	err = raw.Read(func(fd uintptr) bool {
		a = peek(int(fd), conn.of.tls)
		return a.request || a.ended
	})
	_ = conn.SetReadDeadline(time.Time{})
	if err != nil {
		return arrival{ended: true}
	}
	return a
}

// look reports whether a request has arrived by now.
func (conn *connection) look() (arrived bool) {
	if raw, err := rawConn(conn.Conn); err == nil {
		_ = raw.Control(func(fd uintptr) { arrived = peek(int(fd), conn.of.tls).request }) // fails only if it is closed
	}
	return arrived
}

func rawConn(conn net.Conn) (syscall.RawConn, error) {
	if c, ok := conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// peek says what has arrived, and leaves it to be read.
func peek(fd int, tls bool) arrival {
	buffer := firstBytes.Get().(*[maxFirst]byte)
	defer firstBytes.Put(buffer)
	n, _, err := unix.Recvfrom(fd, buffer[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	first := buffer[:max(n, 0)]
	switch {
	case errors.Is(err, unix.EAGAIN):
		return arrival{}
	case err != nil, n == 0:
		return arrival{ended: true}
	case tls:
		return arrival{request: true, health: true}
	case n == len(buffer), bytes.Contains(first, []byte("\r\n\r\n")), bytes.Contains(first, []byte("\n\n")):
		return arrival{request: true, health: asksForHealth(first)}
	}
	return arrival{}
}

// asksForHealth reports whether a request is one that is always answered.
func asksForHealth(request []byte) bool {
	line, _, _ := bytes.Cut(request, []byte("\n"))
	if parts := strings.Split(string(line), " "); len(parts) > 1 {
		path, _, _ := strings.Cut(parts[1], "?")
		return askedAlways[path]
	}
	return false
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection keeps a connection in the context of its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok { // with TLS
		conn = wrapped.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// askedAlways are answered however many connections there are.
var askedAlways = map[string]bool{"/-/healthy": true, "/-/ready": true, "/healthz": true, "/metrics": true}

// connected notes which connections wait for a request, and keeps spare ones for questions about
// the agent's health.
func connected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(connectionKey{}).(*connection)
		if !ok { // not accepted by a Listener
			next.ServeHTTP(w, r)
			return
		}
		conn.answer(1)
		defer conn.answer(-1)
		if conn.spare {
			w.Header().Set("Connection", "close")
			if !askedAlways[r.URL.Path] {
				w.Header().Set("Retry-After", "1")
				http.Error(w, "too many requests are being answered already: try again in 1 s",
					http.StatusServiceUnavailable)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
