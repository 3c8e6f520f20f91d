package listener

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
)

// Clients that ask nothing do not keep others from asking.
func TestIdleConnections(t *testing.T) {
	addr, _ := serve(t, "")
	for range maxConnections + 2*spareConnections {
		idle, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	for _, path := range []string{"/healthz", "/metrics", "/plain"} {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, resp.StatusCode)
		}
	}
}

// The connection that has waited longest makes room. While all are being answered, only spare ones
// are added: half of them are for questions about the agent's health alone, and the others are told
// to come back.
func TestRoomForConnections(t *testing.T) {
	all := newConnections(false)
	add := func(health bool) *connection {
		conn := all.enter(idleConn(t))
		all.add(conn, health)
		return conn
	}
	var busy []*connection
	for range maxConnections - 1 {
		conn := add(false)
		conn.answer(1)
		busy = append(busy, conn)
	}
	first := add(false)
	first.answer(1)
	first.answer(-1)
	second := add(false)
	if _, err := first.Write(nil); err == nil || second.spare || len(all.open) != maxConnections {
		t.Errorf("the first is open: %v; the second is spare: %t; %d connections", err, second.spare, len(all.open))
	}
	var spare *connection // second is not answered yet, and stays nevertheless
	for i := range spareConnections {
		if spare = add(i >= spareConnections/2); !spare.spare {
			t.Fatal("not a spare connection")
		}
	}
	answered := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/metrics": http.StatusOK,
		"/": http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		connected(answered).ServeHTTP(w, httptest.NewRequestWithContext(withConnection(t.Context(), all.anySpare()),
			http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
	spare.Close()
	added := make(chan bool)
	for _, health := range []bool{false, true} {
		go func() { add(health); added <- health }()
	}
	if health := <-added; !health {
		t.Error("another request took the place of one about the agent's health")
	}
	for _, conn := range busy {
		conn.Close()
	}
	<-added
}

// anySpare is one of the spare connections, which has been answered.
func (c *connections) anySpare() *connection {
	for conn := range c.open {
		if conn.spare {
			return conn
		}
	}
	return nil
}

func idleConn(t *testing.T) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a
}

// With TLS, a new connection may ask before those that have asked ask again.
func TestNewConnectionIsKept(t *testing.T) {
	all := newConnections(true)
	add := func() *connection {
		conn := all.enter(idleConn(t))
		all.add(conn, true)
		return conn
	}
	fresh := add()
	for range maxConnections - 1 {
		asked := add()
		asked.answer(1)
		asked.answer(-1)
	}
	add()
	if _, open := all.open[fresh]; !open || len(all.open) != maxConnections {
		t.Errorf("the new connection is open: %v; %d connections", open, len(all.open))
	}
}

// Clients that send nothing, or a part of a header, and come back whenever they are closed, keep
// nobody from asking.
func TestReconnectingClients(t *testing.T) {
	ln, err := Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	addr := ln.Addr().String()
	dial := func(text string) net.Conn {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	slow := dial("GET /healthz HTTP/1.1\r\n")
	asked := dial("GET /healthz?x HTTP/1.1\r\nHost: a\r\n\r\n")
	var first net.Conn
	for i := range maxSilent + 10 {
		if conn := dial([]string{"", "GET / HTTP/1.1\r\n"}[i%2]); first == nil {
			first = conn
		}
	}
	server, err := ln.Accept()
	if err != nil || server.RemoteAddr().String() != asked.LocalAddr().String() {
		t.Fatalf("%v, %v is not the connection that has asked", server, err)
	}
	for _, conn := range []net.Conn{slow, first} {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the oldest connections that have not asked are open")
		}
	}
	c := server.(*connection)
	if c.of.mu.Lock(); c.silent != nil || len(c.of.open) != 1 || c.of.silent.Len() > maxSilent {
		t.Errorf("%d connections have asked, %d have not", len(c.of.open), c.of.silent.Len())
	}
	c.of.mu.Unlock()
}

func TestAsksForHealth(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /healthz HTTP/1.1\r\n\r\n": true, "GET /metrics?a=b HTTP/1.1": true, "HEAD /-/ready": true,
		"GET / HTTP/1.1\r\nX: /healthz": false, "GET": false, "": false,
	} {
		if got := asksForHealth([]byte(request)); got != want {
			t.Errorf("%q: %t", request, got)
		}
	}
}
