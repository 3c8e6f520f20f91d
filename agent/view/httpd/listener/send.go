package listener

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// MaxSending is how many answers with data are sent at once; each is held in memory until then.
	// Clients on the same machine or network take milliseconds.
	MaxSending = 32
	// SendTimeout is how long a client may take to read an answer.
	SendTimeout = 10 * time.Second
)

// A Sender sends answers that are complete. Whoever made one holds nothing else while a slow client
// reads it. The zero value is ready for use.
type Sender struct {
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

// Send sends a body, and returns false if too many others are being sent. Of these it cuts off one
// that takes too long.
func (s *Sender) Send(w http.ResponseWriter, body []byte) bool {
	mine, ok := s.enter(http.NewResponseController(w))
	if !ok {
		return false
	}
	defer s.leave(mine)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client went away, or is too slow
	return true
}

func (s *Sender) enter(to *http.ResponseController) (number uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.busy) >= MaxSending {
		oldest := s.busy[0]
		if now.Sub(oldest.since) < Patience {
			return 0, false
		}
		_ = oldest.to.SetWriteDeadline(now) // fails only if it has been sent
		s.busy = s.busy[1:]
	}
	// Only fails where deadlines are not supported, as in a test's recorder.
	_ = to.SetWriteDeadline(now.Add(SendTimeout))
	s.next++
	s.busy = append(s.busy, sending{s.next, now, to})
	return s.next, true
}

func (s *Sender) leave(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = slices.DeleteFunc(s.busy, func(b sending) bool { return b.number == number })
}
