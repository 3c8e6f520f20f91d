package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
)

// maxPastQueries bounds the answers from the history that are made at once: each reads and merges
// many windows.
const maxPastQueries = 2

// past answers from the history. The zero value answers that there is none.
type past struct {
	history api.History
	queries chan struct{}
}

// Keep makes /profiles/…?from=&to= and the page answer from h. It must be called before Serve.
func (s *Server) Keep(h api.History) {
	s.past.history, s.past.queries = h, make(chan struct{}, maxPastQueries)
	s.data.Keep(h)
}

// ofPast reports whether a request is about the past.
func ofPast(r *http.Request) bool {
	q := r.URL.Query()
	return q.Has("from") || q.Has("to") || q.Has("service")
}

// servePast answers /profiles/…?from=&to=&service=&pid=.
func (p *profiles) servePast(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	_, pids, err := parsePull(q)
	switch {
	case err != nil:
	case !q.Has("from"):
		err = errors.New("to= and service= need from=, such as from=03:10")
	case q.Has("seconds"):
		err = errors.New("seconds= is for the time to come: with from= use to=")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	from, to, err := history.ParseRange(q.Get("from"), q.Get("to"), time.Now())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.Method == http.MethodHead {
		p.header(w.Header())
		return
	}
	if p.past.history == nil {
		refuse(w, http.StatusNotFound, "there is no history: start the agent with serve --history-dir=DIR")
		return
	}
	want := history.Selection{From: from, To: to, Service: q.Get("service"), PIDs: pids, Content: p.kind.Content}
	body, err := p.readPast(r.Context(), want)
	switch {
	case errors.Is(err, errPastBusy):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, err.Error())
	case r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), listener.ErrStopping):
		return // nobody is there to read it
	case errors.Is(err, history.ErrNone), errors.Is(err, errNoPast):
		refuse(w, http.StatusNotFound, err.Error())
	case err != nil:
		p.fail(w, "read the history", err)
	default:
		p.send(w, body)
	}
}

var (
	errPastBusy = fmt.Errorf("%d profiles of the past are being read already; try again in 1 s", maxPastQueries)
	errNoPast   = errors.New("the history has no such process at that time")
)

// readPast returns a stored profile. Only so many are read at once; how long they take to be sent
// does not count.
func (p *profiles) readPast(ctx context.Context, want history.Selection) ([]byte, error) {
	select {
	case p.past.queries <- struct{}{}:
		defer func() { <-p.past.queries }()
	default:
		return nil, errPastBusy
	}
	window, err := p.past.history.Query(ctx, want)
	if err != nil {
		return nil, err
	}
	if len(window.Processes) == 0 && (want.Service != "" || len(want.PIDs) > 0) {
		return nil, errNoPast
	}
	return p.encode(window)
}
