package httpd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// remembered is a history with one window.
type remembered struct {
	window *profile.Profile
	err    error
	hold   chan struct{} // if not nil, answers wait until it is closed

	mu   sync.Mutex
	want history.Selection // selection of the last query
	gaps []history.Gap
}

func (h *remembered) Query(_ context.Context, want history.Selection) (*profile.Profile, error) {
	h.mu.Lock()
	h.want = want
	h.mu.Unlock()
	if h.hold != nil {
		<-h.hold
	}
	return h.window, h.err
}

func (h *remembered) Split(_ context.Context, want history.Selection, _ int, yield func(*profile.Profile) error) error {
	h.mu.Lock()
	h.want = want
	h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	for range 12 {
		if err := yield(h.window); err != nil {
			return err
		}
	}
	return nil
}

func (h *remembered) Gaps(context.Context, time.Time, time.Time) ([]history.Gap, error) {
	return h.gaps, nil
}

func (h *remembered) Timeline(context.Context, time.Time, time.Time, string) ([]history.Slice, error) {
	return nil, h.err
}

func TestPast(t *testing.T) {
	s, hs := start(t, new(fake))
	pull := func(path string) (*http.Response, string) { t.Helper(); return get(t, hs.URL+path) }
	if resp, body := pull("/profiles/cpu?from=03:10&to=03:15"); resp.StatusCode != 404 ||
		!strings.Contains(body, "--history-dir") {
		t.Errorf("without a history: %s %q", resp.Status, body)
	}
	h := &remembered{window: shop(0)}
	s.Keep(h)
	resp, body := pull("/profiles/alloc?from=2026-11-25T03:10:00Z&to=03:15:30&service=shop&pid=7")
	if resp.StatusCode != 200 {
		t.Fatalf("%s %s", resp.Status, body)
	}
	begin := time.Date(2026, 11, 25, 3, 10, 0, 0, time.UTC)
	if w := h.want; !w.From.Equal(begin) || !w.To.Equal(begin.Add(5*time.Minute+30*time.Second)) ||
		w.Service != "shop" || len(w.PIDs) != 1 || w.PIDs[0] != 7 ||
		w.Content != sink.OfEvents(profile.Allocations) {
		t.Errorf("asked for %+v", w)
	}
	if _, err := pprof.ParseData([]byte(body)); err != nil {
		t.Error(err)
	}
	for query, want := range map[string]string{
		"to=03:15": "need from=", "service=shop": "need from=", "from=noon": "want a time such as",
		"from=03:10&seconds=3": "use to=", "from=03:10&pid=x": "bad pid=",
	} {
		if resp, body := pull("/profiles/cpu?" + query); resp.StatusCode != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %s %q, want %q", query, resp.Status, body, want)
		}
	}
	h.window = &profile.Profile{}
	if resp, body := pull("/profiles/cpu?from=03:10&service=other"); resp.StatusCode != 404 ||
		!strings.Contains(body, "no such process") {
		t.Errorf("another service: %s %q", resp.Status, body)
	}
	h.err = history.ErrNone
	if resp, body := pull("/profiles/cpu?from=03:10"); resp.StatusCode != 404 ||
		!strings.Contains(body, "no data for that time") {
		t.Errorf("another time: %s %q", resp.Status, body)
	}
}

// Only so many are answered at once.
func TestPastBusy(t *testing.T) {
	s := newServer(t, new(fake))
	h := &remembered{window: shop(0), hold: make(chan struct{})}
	s.Keep(h)
	answers := make(chan int)
	for range maxPastQueries + 1 {
		go func() {
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, httptest.NewRequest("GET", "/profiles/cpu?from=03:10", nil))
			answers <- w.Code
		}()
	}
	if code := <-answers; code != http.StatusTooManyRequests {
		t.Errorf("the first answer is %d", code)
	}
	close(h.hold)
	for range maxPastQueries {
		if code := <-answers; code != http.StatusOK {
			t.Errorf("another one is %d", code)
		}
	}
}
