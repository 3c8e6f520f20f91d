package httpd

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Clients that ask nothing do not keep others from asking.
func TestIdleConnections(t *testing.T) {
	addr, _ := serve(t, &fake{}, "")
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

// The connection that has waited longest makes room. While all are being answered, only spare ones are added, and they are for questions
// about the agent's health.
func TestRoomForConnections(t *testing.T) {
	all := newConnections()
	var busy []*connection
	for range maxConnections - 1 {
		conn := all.add(idleConn(t))
		conn.answer(1)
		busy = append(busy, conn)
	}
	first := all.add(idleConn(t))
	second := all.add(idleConn(t))
	if _, err := first.Write(nil); err == nil || second.spare || len(all.open) != maxConnections {
		t.Errorf("the first is open: %v; the second is spare: %t; %d connections", err, second.spare, len(all.open))
	}
	second.answer(1)
	var spare *connection
	for range spareConnections {
		if spare = all.add(idleConn(t)); !spare.spare {
			t.Fatal("not a spare connection")
		}
		spare.answer(1)
	}
	answered := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/metrics": http.StatusOK, "/": http.StatusServiceUnavailable} {
		w := httptest.NewRecorder()
		connected(answered).ServeHTTP(w, httptest.NewRequestWithContext(withConnection(t.Context(), spare), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", path, w.Code, want)
		}
	}
	added := make(chan *connection)
	go func() { added <- all.add(idleConn(t)) }()
	busy[0].Close()
	last := <-added // there are spare ones still
	if !last.spare {
		t.Error("it is no spare one")
	}
	last.answer(1)
	go func() { added <- all.add(idleConn(t)) }()
	last.answer(-1) // it waits, and makes room
	if next := <-added; !next.spare || len(all.open) != maxConnections+spareConnections {
		t.Errorf("%d connections", len(all.open))
	}
}

func idleConn(t *testing.T) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return a
}

// A new connection may ask before those that have asked ask again.
func TestNewConnectionIsKept(t *testing.T) {
	all := newConnections()
	fresh := all.add(idleConn(t))
	var asked *connection
	for range maxConnections - 1 {
		asked = all.add(idleConn(t))
		asked.answer(1)
		asked.answer(-1)
	}
	all.add(idleConn(t))
	if _, open := all.open[fresh]; !open || len(all.open) != maxConnections {
		t.Errorf("the new connection is open: %v; %d connections", open, len(all.open))
	}
}
