package stored

import (
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// Inlining is what the inliner of a process's VM decides by: see profile.Inlining.
type Inlining struct {
	PID     int64                `json:"pid"`
	Limits  profile.InlineLimits `json:"limits,omitzero"`
	Callees []Callee             `json:"callees,omitempty"`
}

// A Callee is a method that calls enter: see profile.Callee.
type Callee struct {
	Method   int           `json:"method"` // the system name's place in Metadata.Methods
	Bytecode int           `json:"bytecode,omitempty"`
	Entering time.Duration `json:"entering,omitempty"`
}

// MaxCallees is how many callees a profile has at most.
const MaxCallees = 1 << 16

// tidyInlining brings sizes and times into their ranges.
func (m *Metadata) tidyInlining() {
	m.Inlining = shorten(m, slices.Clone(m.Inlining), maxList)
	room := MaxCallees
	for i := range m.Inlining {
		in := &m.Inlining[i]
		for _, limit := range []*int{&in.Limits.FreqInlineSize, &in.Limits.InlineSmallCode, &in.Limits.TypeProfileMajorReceiverPercent} {
			*limit = min(max(*limit, 0), math.MaxInt32)
		}
		in.Callees = shorten(m, in.Callees, room)
		room -= len(in.Callees)
		for j := range in.Callees {
			c := &in.Callees[j]
			c.Bytecode, c.Entering = min(max(c.Bytecode, 0), math.MaxInt32), max(c.Entering, 0)
		}
	}
}
