package httpd

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections is how many connections there are at once.
	maxConnections = 256
	// spareConnections are beyond: of these only questions about the agent's health are answered.
	spareConnections = 16
)

// connections are those of a Listener. If there are too many, the one that has waited longest for a request is closed: clients that ask nothing
// must not keep others from asking. A new one has some time to ask first: on a busy machine, clients that come back at once would otherwise have it closed
// before its request is read.
type connections struct {
	mu   sync.Mutex
	open map[*connection]struct{}
	free sync.Cond // one fewer, or one that waits
}

func newConnections() *connections {
	c := &connections{open: map[*connection]struct{}{}}
	c.free.L = &c.mu
	return c
}

// A connection is one of so many.
type connection struct {
	net.Conn
	of       *connections
	spare    bool
	requests int       // that are being answered
	asked    bool      // at least once
	waits    time.Time // for a request, since then, if there is none
}

// add makes room for a connection that was accepted. It waits until there is some.
func (c *connections) add(conn net.Conn) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	added := &connection{Conn: conn, of: c, waits: time.Now()}
	for len(c.open) >= maxConnections {
		if waiting := c.longestWaiting(); waiting != nil {
			delete(c.open, waiting)
			waiting.Conn.Close()
		} else if len(c.open) < maxConnections+spareConnections {
			added.spare = true
			break
		} else {
			c.free.Wait()
		}
	}
	c.open[added] = struct{}{}
	return added
}

// firstRequest is how long a new connection may wait while others that have asked wait as well.
const firstRequest = time.Second

// longestWaiting is the connection that has waited longest for a request, of new ones only if all are new, and nil if all are being answered.
func (c *connections) longestWaiting() (longest *connection) {
	now := time.Now()
	isNew := func(conn *connection) bool { return !conn.asked && now.Sub(conn.waits) < firstRequest }
	for conn := range c.open {
		switch {
		case conn.requests > 0:
		case longest == nil || isNew(longest) && !isNew(conn):
			longest = conn
		case isNew(longest) == isNew(conn) && conn.waits.Before(longest.waits):
			longest = conn
		}
	}
	return longest
}

// Close closes the connection and makes room for another.
func (conn *connection) Close() error {
	conn.of.mu.Lock()
	defer conn.of.mu.Unlock()
	delete(conn.of.open, conn)
	conn.of.free.Signal()
	return conn.Conn.Close()
}

// answer notes that a request is being answered, or no more.
func (conn *connection) answer(requests int) {
	conn.of.mu.Lock()
	defer conn.of.mu.Unlock()
	conn.asked = true
	if conn.requests += requests; conn.requests == 0 {
		conn.waits = time.Now()
		conn.of.free.Signal()
	}
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

// connected notes which connections wait for a request, and keeps spare ones for questions about the agent's health.
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
				http.Error(w, "too many requests are being answered already: try again in 1 s", http.StatusServiceUnavailable)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
