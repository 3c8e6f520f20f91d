package httpd

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
// number, and end soon.
func TestSlowClients(t *testing.T) {
	s := newServer(t, new(fake))
	s.Keep(&remembered{window: shop(0)})
	s.Observe(shop(1))
	ask := func(path string) int {
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Code
	}
	paths := []string{"/api/v1/flame", "/profiles/cpu?from=03:10", "/profiles/cpu?seconds=1"}
	writing, let, done := make(chan struct{}, maxSending), make(chan struct{}), make(chan *slowClient)
	for i := range maxSending {
		if i == maxSending-1 {
			for _, path := range paths {
				if code := ask(path); code != http.StatusOK {
					t.Errorf("%s with %d slow clients: %d", path, i, code)
				}
			}
		}
		go func() {
			c := &slowClient{ResponseRecorder: httptest.NewRecorder(), writing: writing, let: let}
			s.handler.ServeHTTP(c, httptest.NewRequest("GET", paths[i%len(paths)], nil))
			done <- c
		}()
		select {
		case <-writing:
		case <-time.After(4 * time.Second):
			t.Fatalf("slow client %d is not answered", i)
		}
	}
	for _, path := range paths {
		if code := ask(path); code != http.StatusTooManyRequests {
			t.Errorf("%s with %d slow clients: %d", path, maxSending, code)
		}
	}
	close(let)
	for range maxSending {
		if c := <-done; c.Code != http.StatusOK || c.deadline.IsZero() || time.Until(c.deadline) > sendTimeout {
			t.Errorf("%d, until %v", c.Code, c.deadline)
		}
	}
}
