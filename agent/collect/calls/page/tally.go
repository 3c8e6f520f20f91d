package page

import (
	"maps"
	"sync"
)

// Stats describe what the engine did with processes. Counters never decrease.
type Stats struct {
	Guests   int               // gauge: connected now
	Accepted uint64            // counter: accepted connections
	Refused  map[string]uint64 // counter: refused connections, by cause
	Messages uint64            // counter: accepted registrations
	Ignored  map[string]uint64 // counter: rejected registrations, by cause: malformed, methods, bytes, …
	Resolved uint64            // counter: calls that became edges
	// Unresolved is a counter: calls that did not become edges, or not completely, by cause: guest,
	// callee; caller.
	Unresolved map[string]uint64
	Unweighed  map[string]uint64 // counter: resolved calls that Fold hands out no edge for, by cause: calibration, time
}

// Causes that Stats counts by, in addition to those of refusal.
const (
	causePeer      = "peer"      // the process that connected could not be identified
	causePanic     = "panic"     // the agent failed to handle it
	causeMalformed = "malformed" // a message
	causeGuest     = "guest"     // a call of a guest that is not known
	causeCallee    = "callee"    // a call of a method that was never registered
	causeCaller    = "caller"    // a call out of code that was not registered: an edge from [native]
)

// A tally counts for Stats.
type tally struct {
	mu sync.Mutex
	s  Stats
}

// newTally has every cause from the start, so that all series of a metric exist before the first
// failure.
func newTally() *tally {
	t := &tally{s: Stats{Refused: map[string]uint64{causePeer: 0, causePanic: 0}, Ignored: map[string]uint64{},
		Unresolved: map[string]uint64{}}}
	for r := refusal(1); r < refusalCount; r++ {
		t.s.Refused[refusalNames[r]] = 0
	}
	for _, cause := range []string{causeMalformed, string(tooManyMethods), string(tooManyBytes), string(unknownCode)} {
		t.s.Ignored[cause] = 0
	}
	for _, cause := range []string{causeGuest, causeCallee, causeCaller} {
		t.s.Unresolved[cause] = 0
	}
	return t
}

func (t *tally) accepted() { t.do(func(s *Stats) { s.Accepted++ }) }

func (t *tally) refused(cause string) { t.do(func(s *Stats) { s.Refused[cause]++ }) }

func (t *tally) message() { t.do(func(s *Stats) { s.Messages++ }) }

func (t *tally) ignored(cause string) { t.do(func(s *Stats) { s.Ignored[cause]++ }) }

func (t *tally) resolved() { t.do(func(s *Stats) { s.Resolved++ }) }

func (t *tally) unresolved(cause string) { t.do(func(s *Stats) { s.Unresolved[cause]++ }) }

func (t *tally) do(count func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count(&t.s)
}

func (t *tally) stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.s
	s.Refused, s.Ignored, s.Unresolved = maps.Clone(s.Refused), maps.Clone(s.Ignored), maps.Clone(s.Unresolved)
	return s
}
