package httpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// Bounds of ?seconds=. The default is that of Go's own /debug/pprof/profile.
	minSeconds, defaultSeconds, maxSeconds = 1, 30, 300
	// maxPulls is how many profiles are collected at once, unless they are of different kinds; each
	// holds its own trees.
	maxPulls = 4
	// maxPIDs bounds ?pid=.
	maxPIDs = 64
)

// profiles answers /profiles/… as net/http/pprof answers /debug/pprof/profile: it collects for as
// long as the request asks, then sends a gzipped pprof.
type profiles struct {
	source Source
	kind   *kind
	slots  *slots
	past   *past
	sender *listener.Sender
	logger *slog.Logger
}

func newProfiles(source Source, k *kind, s *slots, past *past, sender *listener.Sender, logger *slog.Logger) *profiles {
	return &profiles{source, k, s, past, sender, logger}
}

func (p *profiles) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ofPast(r) {
		p.servePast(w, r)
		return
	}
	d, pids, err := parsePull(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if r.Method == http.MethodHead {
		p.header(w.Header())
		return
	}
	if why := p.kind.refusal(p.source.Stats()); why != "" {
		refuse(w, http.StatusNotFound, why)
		return
	}
	release, wait, ok := p.slots.take(p.kind.Name, time.Now(), d)
	if !ok {
		w.Header().Set("Retry-After", strconv.Itoa(wait))
		refuse(w, http.StatusTooManyRequests,
			fmt.Sprintf("too many profiles are being collected already; try again in %d s", wait))
		return
	}
	defer release()
	// Only fails where deadlines are not supported, as in a test's recorder.
	// for answers without a profile
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + listener.WriteTimeout))

	window, err := p.source.Collect(r.Context(), d, pids)
	stopping := errors.Is(context.Cause(r.Context()), listener.ErrStopping)
	switch {
	case r.Context().Err() != nil && !stopping:
		return // nobody is there to read it
	case errors.Is(err, ErrNoProcess):
		refuse(w, http.StatusNotFound, err.Error())
		return
	case err != nil:
		p.fail(w, "collect profile", err)
		return
	}
	body, err := p.encode(window)
	release()
	if err != nil {
		p.fail(w, "encode profile", err)
		return
	}
	p.send(w, body)
}

// encode returns a profile as it is sent: in memory, so that an error can still be reported as one.
// Tens of kilobytes are usual.
func (p *profiles) encode(window *profile.Profile) ([]byte, error) {
	prof, err := sink.Pprof(window, api.WithSlow(p.kind.Content, window))
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := prof.Write(&body); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

func (p *profiles) send(w http.ResponseWriter, body []byte) {
	p.header(w.Header())
	if !p.sender.Send(w, body) {
		w.Header().Del("Content-Disposition")
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, fmt.Sprintf("%d answers are being sent already; try again in 1 s",
			listener.MaxSending))
	}
}

func (p *profiles) fail(w http.ResponseWriter, step string, err error) {
	p.logger.Error("Profile request failed", "step", step, "err", err)
	refuse(w, http.StatusInternalServerError, fmt.Sprintf("%s: %v", step, err))
}

// header says what net/http/pprof says. The body is gzipped pprof, which is not a Content-Encoding:
// readers want to have the file as it is.
func (p *profiles) header(h http.Header) {
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.pb.gz"`, p.kind.Name))
}

// refuse answers with an error that go tool pprof shows to its user, which it does only with this
// header.
func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("X-Go-Pprof", "1")
	http.Error(w, text, status)
}

// parsePull reads the parameters of a request: seconds once, pid any number of times. Others are
// ignored, as scrapers may add their own.
func parsePull(q url.Values) (d time.Duration, pids []int, err error) {
	seconds := defaultSeconds
	if q.Has("seconds") {
		seconds, err = strconv.Atoi(q.Get("seconds"))
		if err != nil || seconds < minSeconds || seconds > maxSeconds {
			return 0, nil, fmt.Errorf("bad seconds=%.20q: want a whole number from %d to %d", q.Get("seconds"),
				minSeconds, maxSeconds)
		}
	}
	if len(q["pid"]) > maxPIDs {
		return 0, nil, fmt.Errorf("%d times pid=: want at most %d", len(q["pid"]), maxPIDs)
	}
	for _, s := range q["pid"] {
		pid, err := strconv.Atoi(s)
		if err != nil || pid < 1 || pid > api.MaxPID {
			return 0, nil, fmt.Errorf("bad pid=%.20q: want the number of a process", s)
		}
		pids = append(pids, pid)
	}
	return time.Duration(seconds) * time.Second, pids, nil
}

// slots limits how many profiles are collected at once, and knows when the next slot becomes free.
// A kind of which none is collected always has one, so that whoever scrapes all kinds at the same
// time gets all of them.
type slots struct {
	mu   sync.Mutex
	next int
	held map[int]slot // fewer than maxPulls and the number of kinds together
}

// A slot is held by a profile that is being collected.
type slot struct {
	kind string
	end  time.Time
}

func newSlots() *slots { return &slots{held: make(map[int]slot)} }

// take reserves a slot for a profile of a kind for d from now, and returns what gives it back. If
// there is none, ok is false and wait says in how many seconds, at least one, there should be one
// again.
func (s *slots) take(kind string, now time.Time, d time.Duration) (release func(), wait int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	soonest, collected := maxSeconds*time.Second, false
	for _, held := range s.held {
		soonest = min(soonest, held.end.Sub(now))
		collected = collected || held.kind == kind
	}
	if collected && len(s.held) >= maxPulls {
		return nil, max(1, int(math.Ceil(soonest.Seconds()))), false
	}
	id := s.next
	s.next++
	s.held[id] = slot{kind, now.Add(d)}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, id)
	}, 0, true
}
