package stored

import (
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Inlining is what the inliner of a process's VM decides by: see profile.Inlining.
type Inlining struct {
	PID     int64                `json:"pid"`
	Limits  profile.InlineLimits `json:"limits,omitzero"`
	Callees []Callee             `json:"callees,omitempty"`
	Sites   []VirtualSite        `json:"sites,omitempty"`
}

// A VirtualSite is a call with several receivers: see profile.VirtualSite. Methods are places in
// Metadata.Methods.
type VirtualSite struct {
	Caller  int             `json:"caller"`
	Offset  int32           `json:"offset"`
	Calls   uint64          `json:"calls"`
	Targets []VirtualTarget `json:"targets"`
}

// A VirtualTarget is one of its targets.
type VirtualTarget struct {
	Method int    `json:"method"`
	Calls  uint64 `json:"calls"`
}

// A Callee is a method that calls enter: see profile.Callee.
type Callee struct {
	Method   int           `json:"method"` // the system name's place in Metadata.Methods
	Bytecode int           `json:"bytecode,omitempty"`
	Entering time.Duration `json:"entering,omitempty"`
}

// Bounds on Inlining.
const (
	MaxCallees      = 1 << 16 // callees in a profile
	MaxVirtualSites = 1 << 13 // virtual call sites in a profile
	MaxTargets      = 8       // targets of a call site
)

// tidyInlining brings sizes and times into their ranges.
func (m *Metadata) tidyInlining() {
	m.Inlining = shorten(m, slices.Clone(m.Inlining), maxList)
	room, sites := MaxCallees, MaxVirtualSites
	for i := range m.Inlining {
		in := &m.Inlining[i]
		for _, limit := range []*int{&in.Limits.FreqInlineSize, &in.Limits.InlineSmallCode,
			&in.Limits.TypeProfileMajorReceiverPercent} {
			*limit = min(max(*limit, 0), math.MaxInt32)
		}
		in.Callees = shorten(m, in.Callees, room)
		room -= len(in.Callees)
		in.Sites = shorten(m, in.Sites, sites)
		sites -= len(in.Sites)
		for j := range in.Sites {
			s := &in.Sites[j]
			s.Targets = s.Targets[:min(len(s.Targets), MaxTargets)]
		}
		for j := range in.Callees {
			c := &in.Callees[j]
			c.Bytecode, c.Entering = min(max(c.Bytecode, 0), math.MaxInt32), max(c.Entering, 0)
		}
	}
}
