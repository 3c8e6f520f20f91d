package httpd

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
)

// A slowClient reads nothing until it is let.
type slowClient struct {
	*httptest.ResponseRecorder
	writing  chan<- struct{}
	let      <-chan struct{}
	deadline time.Time
}

func (c *slowClient) Write(b []byte) (int, error) {
	c.writing <- struct{}{}
	<-c.let
	return c.ResponseRecorder.Write(b)
}

func (c *slowClient) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

// Clients that do not read their answers keep nobody else from asking, their answers are bounded in
// number, and end soon: at once if others want their place and they had it for some time.
func TestSlowClients(t *testing.T) { synctest.Test(t, testSlowClients) }

func testSlowClients(t *testing.T) {
	s := newServer(t, new(fake))
	s.Keep(&remembered{window: shop(0)})
	s.Observe(shop(1))
	ask := func(path string) int {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	paths := []string{"/api/v1/flame", "/profiles/cpu?from=03:10", "/profiles/cpu?seconds=1"}
	writing, let, done := make(chan struct{}, listener.MaxSending), make(chan struct{}), make(chan *slowClient)
	var clients []*slowClient
	for i := range listener.MaxSending {
		if i == listener.MaxSending-1 {
			for _, path := range paths {
				if code := ask(path); code != http.StatusOK {
					t.Errorf("%s with %d slow clients: %d", path, i, code)
				}
			}
		}
		c := &slowClient{ResponseRecorder: httptest.NewRecorder(), writing: writing, let: let}
		clients = append(clients, c)
		go func() {
			s.handler.ServeHTTP(c, httptest.NewRequest("GET", paths[i%len(paths)], nil))
			done <- c
		}()
		<-writing
	}
	for _, path := range paths {
		if code := ask(path); code != http.StatusTooManyRequests {
			t.Errorf("%s with %d slow clients: %d", path, listener.MaxSending, code)
		}
	}
	time.Sleep(listener.Patience)
	for _, path := range paths {
		if code := ask(path); code != http.StatusOK {
			t.Errorf("%s with %d clients that are too slow: %d", path, listener.MaxSending, code)
		}
	}
	cut := 0
	for _, c := range clients {
		if time.Until(c.deadline) <= 0 {
			cut++
		} else if c.deadline.IsZero() || time.Until(c.deadline) > listener.SendTimeout {
			t.Errorf("a client may read until %v", c.deadline)
		}
	}
	if cut != 1 || time.Until(clients[0].deadline) > 0 { // its place was free for the others as well
		t.Errorf("%d clients were cut off; the first may read until %v", cut, clients[0].deadline)
	}
	close(let)
	for range listener.MaxSending {
		if c := <-done; c.Code != http.StatusOK {
			t.Errorf("status %d", c.Code)
		}
	}
}
