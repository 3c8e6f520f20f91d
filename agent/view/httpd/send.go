package httpd

import (
	"net/http"
	"strconv"
	"time"
)

const (
	// maxSending is how many answers with data are sent at once; each is held in memory until then.
	// Clients on the same machine or network take milliseconds.
	maxSending = 32
	// sendTimeout is how long a client may take to read an answer.
	sendTimeout = 10 * time.Second
)

// A sender sends answers that are complete. Whoever made one holds nothing else while a slow client
// reads it.
type sender struct{ busy chan struct{} }

func newSender() *sender { return &sender{make(chan struct{}, maxSending)} }

// send sends a body, and returns false if too many others are being sent.
func (s *sender) send(w http.ResponseWriter, body []byte) bool {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		return false
	}
	// Only fails where deadlines are not supported, as in a test's recorder.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sendTimeout))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client went away, or is too slow
	return true
}
