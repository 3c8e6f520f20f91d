package httpd

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
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
type sender struct {
	mu   sync.Mutex
	busy []sending // the oldest first
	next uint64
}

// A sending is an answer that is sent.
type sending struct {
	number uint64
	since  time.Time
	to     *http.ResponseController
}

func newSender() *sender { return new(sender) }

// send sends a body, and returns false if too many others are being sent. Of these it cuts off one
// that takes too long.
func (s *sender) send(w http.ResponseWriter, body []byte) bool {
	mine, ok := s.enter(http.NewResponseController(w))
	if !ok {
		return false
	}
	defer s.leave(mine)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client went away, or is too slow
	return true
}

func (s *sender) enter(to *http.ResponseController) (number uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.busy) >= maxSending {
		oldest := s.busy[0]
		if now.Sub(oldest.since) < patience {
			return 0, false
		}
		_ = oldest.to.SetWriteDeadline(now) // fails only if it has been sent
		s.busy = s.busy[1:]
	}
	// Only fails where deadlines are not supported, as in a test's recorder.
	_ = to.SetWriteDeadline(now.Add(sendTimeout))
	s.next++
	s.busy = append(s.busy, sending{s.next, now, to})
	return s.next, true
}

func (s *sender) leave(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = slices.DeleteFunc(s.busy, func(b sending) bool { return b.number == number })
}
