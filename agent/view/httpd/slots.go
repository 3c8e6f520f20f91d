package httpd

import (
	"math"
	"sync"
	"time"
)

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
