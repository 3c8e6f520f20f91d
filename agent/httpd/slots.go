package httpd

import (
	"math"
	"sync"
	"time"
)

// slots limits how many profiles are collected at once, and knows when the next slot becomes free.
type slots struct {
	mu   sync.Mutex
	next int
	ends map[int]time.Time // at most maxPulls
}

func newSlots() *slots { return &slots{ends: make(map[int]time.Time)} }

// take reserves a slot for d from now, and returns what gives it back. If there is none, ok is false and wait says
// in how many seconds, at least one, there should be one again.
func (s *slots) take(now time.Time, d time.Duration) (release func(), wait int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ends) >= maxPulls {
		soonest := maxSeconds * time.Second
		for _, end := range s.ends {
			soonest = min(soonest, end.Sub(now))
		}
		return nil, max(1, int(math.Ceil(soonest.Seconds()))), false
	}
	id := s.next
	s.next++
	s.ends[id] = now.Add(d)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ends, id)
	}, 0, true
}
