package exactcalls

import (
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Snapshot is the state of a recording at one moment.
type Snapshot = exact.Snapshot

// Calls are the calls of a JVM between two moments, named.
type Calls struct {
	*exact.Recording
	Logical  *profile.Graph // graph of methods, inlined ones too
	Physical *profile.Graph // graph of compiled code, without calls that were inlined
	Trees    []*cct.Tree[symbol.Symbol]
	Unnamed  int // methods without a name
}

// Snapshot takes a snapshot, for Since.
func (s *Session) Snapshot() (*Snapshot, error) { return s.recorder.Snapshot() }

// Stop ends recording: from now on Since returns the same, and nothing is in flight.
func (s *Session) Stop() error { return s.recorder.Stop() }

// Since returns the calls since a moment, nil for all.
func (s *Session) Since(earlier *Snapshot) (*Calls, error) {
	now, err := s.recorder.Snapshot()
	if err != nil {
		return nil, err
	}
	r := now.Since(earlier)
	c := &Calls{Recording: r, Logical: exact.Logical(r.Graph, s.names), Physical: exact.Physical(r.Graph, s.names)}
	one := make([]symbol.Symbol, 1)
	for _, t := range r.Threads {
		c.Trees = append(c.Trees, cct.Map(t.Tree, func(m exact.Method) []symbol.Symbol {
			one[0] = s.names.Method(m)
			return one
		}))
	}
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	c.Unnamed = s.names.failed
	return c, nil
}
