// Package stacks reads what a stored profile has: its samples as stacks of methods, with their
// labels, and its kinds of values, calls and windows. Views, comparisons and flame graphs are made
// of that.
//
//	s, err := stacks.NewSamples(p, stored.TypeCPU)
//	for sample, value := range s.All() {
//		frames = s.AppendFrames(frames[:0], sample)
//	}
//
// Every profile is untrusted: strings that it returns are printable, and sums do not overflow.
package stacks

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// Samples are the samples of a stored profile by one of its values, which are known to be positive
// and to add up to less than 2^63.
type Samples struct {
	Profile *pprof.Profile
	Column  int // index of the value in Sample.Value
	Total   uint64
	Keep    func(*pprof.Sample) bool // nil for all
	frames  map[*pprof.Location][]Frame
	wakers  bool // stacks of waits may end with those of their wakers
}

// NewSamples returns the samples of a profile by the values of a type. It fails if there are no values of
// that type or if they cannot be added up.
func NewSamples(p *pprof.Profile, sampleType string) (*Samples, error) {
	s := &Samples{Profile: p, Column: TypeIndex(p, sampleType), frames: make(map[*pprof.Location][]Frame)}
	if s.Column < 0 {
		return nil, fmt.Errorf("the profile has no values of type %s: choose %s", stored.Printable(sampleType),
			TypeList(p))
	}
	for _, sample := range p.Sample {
		value := sample.Value[s.Column]
		if value < 0 {
			return nil, errors.New("the profile has negative values, such as a difference of profiles: use go tool " +
				"pprof instead")
		}
		if uint64(value) > math.MaxInt64-s.Total {
			return nil, errors.New("the sum of the profile's values exceeds 63 bits")
		}
		s.Total += uint64(value)
	}
	if countedBesides(p) {
		s.Keep = sampled
	}
	s.wakers = hasWakers(p)
	return s, nil
}

// Unit is what the values count: for costs the name of the model.
func (s *Samples) Unit() string { return unitOf(s.Profile.SampleType[s.Column]) }

// Amount writes a sum of values for people.
func (s *Samples) Amount(value float64) string {
	return layout.Amount(s.Profile.SampleType[s.Column], value)
}

// LeaveWaits leaves out the waits for work if the values are delays by locks, or times of threads
// of which some have nothing to do. The others would drown in them. It returns how long these waits
// were.
func (s *Samples) LeaveWaits() (waited uint64) {
	kind, ok := EventKindOf(s.Profile)
	if !ok || s.Unit() != stored.MainValue(kind).Type {
		return 0
	}
	keep := Contended
	switch kind {
	case profile.Locks:
	case profile.OffCPU, profile.Wall:
		keep = busy
	default:
		return 0
	}
	for sample, value := range s.All() {
		if !keep(sample) {
			waited += value
		}
	}
	s.Keep = keep
	return waited
}

// OfCalls says that the values count calls.
func (s *Samples) OfCalls() bool { return isCalls(s.Profile.SampleType[s.Column]) }

// All yields the samples to keep that have a value, with it.
func (s *Samples) All() iter.Seq2[*pprof.Sample, uint64] {
	return func(yield func(*pprof.Sample, uint64) bool) {
		for _, sample := range s.Profile.Sample {
			if value := s.Value(sample); value != 0 && !yield(sample, value) {
				return
			}
		}
	}
}

// Value returns that of a sample, 0 if it is not to be kept.
func (s *Samples) Value(sample *pprof.Sample) uint64 {
	value := sample.Value[s.Column]
	if value == 0 || s.Keep != nil && !s.Keep(sample) {
		return 0
	}
	return uint64(value)
}

// AppendFrames appends the frames of a sample, innermost first, and at least one: without those of
// a waker.
func (s *Samples) AppendFrames(frames []Frame, sample *pprof.Sample) []Frame {
	return s.AppendLocations(frames, s.Own(sample))
}

func (s *Samples) AppendLocations(frames []Frame, locations []*pprof.Location) []Frame {
	for _, loc := range locations {
		frames = append(frames, s.At(loc)...)
	}
	if len(locations) == 0 {
		frames = append(frames, Frame{Method: methodOf(nil, nil)})
	}
	return frames
}

// Own returns the locations of a sample without those of who ended the wait.
func (s *Samples) Own(sample *pprof.Sample) []*pprof.Location {
	return sample.Location[s.WokenAt(sample)+1:]
}

// WokenAt returns where in a sample's locations the frame [woken by …] is, which is next to the
// wait's own innermost one; -1 if there is none.
func (s *Samples) WokenAt(sample *pprof.Sample) int {
	if !s.wakers || Label(sample, stored.LabelWaker) == "" {
		return -1
	}
	return slices.IndexFunc(sample.Location, func(loc *pprof.Location) bool {
		f := s.At(loc)
		return len(f) == 1 && f[0].Flags&^(Inlined|Called) == 0 && strings.HasPrefix(f[0].Name, profile.WokenBy)
	})
}

// At returns the frames of a location, which are made once.
func (s *Samples) At(loc *pprof.Location) []Frame {
	frames, known := s.frames[loc]
	if !known {
		frames = locationFrames(loc)
		s.frames[loc] = frames
	}
	return frames
}

// Edge returns the call that the two innermost frames of a sample are: the outermost method is
// called by nobody.
func (s *Samples) Edge(sample *pprof.Sample) CallEdge {
	callee := Frame{Method: methodOf(nil, nil)}
	caller := Frame{Method: Nobody, Site: stored.NoSite}
	found := 0
	for _, loc := range s.Own(sample) {
		for _, f := range s.At(loc) {
			switch found++; found {
			case 1:
				callee = f
			case 2:
				caller = f
			}
		}
		if found >= 2 {
			break
		}
	}
	if !s.OfCalls() {
		caller.Site.Offset = stored.NoSite.Offset // an address of code
	}
	return CallEdge{Caller: caller.Method, Site: caller.Site, Callee: callee.Method}
}
