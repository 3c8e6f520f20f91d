package listener

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
)

// Scrapes answers questions for metrics. Whoever asks while an answer is being made gets the next
// one, with all others that do. One is made at a time, and complete before it is sent, so that
// neither many clients nor slow ones keep others waiting.
type Scrapes struct {
	metrics http.Handler
	making  chan struct{} // holds an element while one is made

	mu   sync.Mutex
	next map[scrapeFormat]*scrape // those that are not being made yet
}

// A scrapeFormat is what clients may choose of an answer.
type scrapeFormat struct {
	format expfmt.Format
	zipped bool
}

// A scrape is an answer, which is complete once done is closed.
type scrape struct {
	done   chan struct{}
	header http.Header
	status int
	body   bytes.Buffer
}

// NewScrapes answers with what a handler does.
func NewScrapes(metrics http.Handler) *Scrapes {
	return &Scrapes{metrics: metrics, making: make(chan struct{}, 1), next: map[scrapeFormat]*scrape{}}
}

// ServeHTTP implements http.Handler.
func (s *Scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := s.answer(r)
	select {
	case <-answer.done:
	case <-r.Context().Done():
		return
	}
	// Only fails where deadlines are not supported, as in a test's recorder.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(SendTimeout))
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes()) // an error means that the client went away, or is too slow
}

// answer returns the next answer in the format that a request is for, and makes it if nobody else
// does.
func (s *Scrapes) answer(r *http.Request) *scrape {
	f := scrapeFormat{expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...),
		strings.Contains(strings.Join(r.Header.Values("Accept-Encoding"), ","), "gzip")}
	s.mu.Lock()
	answer := s.next[f]
	if answer != nil {
		s.mu.Unlock()
		return answer
	}
	answer = &scrape{done: make(chan struct{}), header: http.Header{}, status: http.StatusOK}
	s.next[f] = answer
	s.mu.Unlock()

	s.making <- struct{}{}
	defer func() { <-s.making }()
	s.mu.Lock()
	delete(s.next, f)
	s.mu.Unlock()
	defer close(answer.done)
	asked := r.Clone(r.Context())
	if asked.Header.Del("Accept-Encoding"); f.zipped {
		asked.Header.Set("Accept-Encoding", "gzip")
	}
	s.metrics.ServeHTTP(answer, asked)
	return answer
}

// Header, Write and WriteHeader implement http.ResponseWriter.
func (a *scrape) Header() http.Header         { return a.header }
func (a *scrape) Write(p []byte) (int, error) { return a.body.Write(p) }
func (a *scrape) WriteHeader(status int)      { a.status = status }
