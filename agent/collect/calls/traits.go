package calls

import "github.com/vmprof-agent/vmprof-agent/agent/model/profile"

// Traits are the sampling options that apply to an engine.
type Traits struct {
	Stride       Stride
	SelfGoverned bool // it keeps to the budget by itself, with windows: neither stride nor samples apply
	Inlined      bool // it reports inlined calls
}

// A Stride says which calls of a burst an engine samples.
type Stride uint8

const (
	EveryNth  Stride = iota // N follows from the budget, or is fixed
	EveryCall               // every call of a burst traps
	InARow                  // the CPU records consecutive calls
)

// Fixed returns the part of the user's fixed rate r that applies to the engine.
func (t Traits) Fixed(r profile.Rate) profile.Rate {
	if t.Stride == EveryCall {
		r.Stride = 1
	}
	return r
}

// Unlimited reports whether an engine has no budget, because r fixes all of its rate.
func (t Traits) Unlimited(r profile.Rate) bool {
	r = t.Fixed(r)
	return !t.SelfGoverned && r.Hz > 0 && r.Stride > 0 && r.Samples > 0
}

// Label returns a rate of the engine as shown in profiles: without a stride unless it samples every
// Nth call.
func (t Traits) Label(r profile.Rate) profile.Rate {
	if t.Stride != EveryNth {
		r.Stride = 0
	}
	return r
}
