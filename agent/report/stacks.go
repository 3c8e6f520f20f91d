package report

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// stacks are the samples of a stored profile by one of its values, which are known to be positive and to add up to
// less than 2^63.
type stacks struct {
	profile *pprof.Profile
	index   int // of the value in Sample.Value
	total   uint64
	keep    func(*pprof.Sample) bool // nil for all
	frames  map[*pprof.Location][]storedFrame
	wakers  bool // stacks of waits may end with those of their wakers
}

// newStacks fails if there are no values of that type or if they cannot be added up.
func newStacks(p *pprof.Profile, sampleType string) (*stacks, error) {
	s := &stacks{profile: p, index: typeIndex(p, sampleType), frames: make(map[*pprof.Location][]storedFrame)}
	if s.index < 0 {
		return nil, fmt.Errorf("the profile has no values of type %s: choose %s", stored.Printable(sampleType), typeList(p))
	}
	for _, sample := range p.Sample {
		value := sample.Value[s.index]
		if value < 0 {
			return nil, errors.New("the profile has negative values, such as a difference of profiles: use go tool pprof instead")
		}
		if uint64(value) > math.MaxInt64-s.total {
			return nil, errors.New("the sum of the profile's values exceeds 63 bits")
		}
		s.total += uint64(value)
	}
	if countedBesides(p) {
		s.keep = sampled
	}
	s.wakers = hasWakers(p)
	return s, nil
}

// unit is what the values count: for costs the name of the model.
func (s *stacks) unit() string { return unitOf(s.profile.SampleType[s.index]) }

// amount writes a sum of values for people.
func (s *stacks) amount(value float64) string {
	return layout.Amount(s.profile.SampleType[s.index], value)
}

// leaveWaits leaves out the waits for work if the values are delays by locks, or times of threads of which some have nothing to do. The
// others would drown in them. It returns how long these waits were.
func (s *stacks) leaveWaits() (waited uint64) {
	kind, ok := EventKindOf(s.profile)
	if !ok || s.unit() != stored.MainValue(kind).Type {
		return 0
	}
	keep := contended
	switch kind {
	case profile.Locks:
	case profile.OffCPU, profile.Wall:
		keep = busy
	default:
		return 0
	}
	for sample, value := range s.all() {
		if !keep(sample) {
			waited += value
		}
	}
	s.keep = keep
	return waited
}

// ofCalls says that the values count calls.
func (s *stacks) ofCalls() bool { return isCalls(s.profile.SampleType[s.index]) }

// all yields the samples to keep that have a value, with it.
func (s *stacks) all() iter.Seq2[*pprof.Sample, uint64] {
	return func(yield func(*pprof.Sample, uint64) bool) {
		for _, sample := range s.profile.Sample {
			if value := s.value(sample); value != 0 && !yield(sample, value) {
				return
			}
		}
	}
}

// value returns that of a sample, 0 if it is not to be kept.
func (s *stacks) value(sample *pprof.Sample) uint64 {
	value := sample.Value[s.index]
	if value == 0 || s.keep != nil && !s.keep(sample) {
		return 0
	}
	return uint64(value)
}

// appendFrames appends the frames of a sample, innermost first, and at least one: without those of a waker.
func (s *stacks) appendFrames(frames []storedFrame, sample *pprof.Sample) []storedFrame {
	return s.appendLocations(frames, s.own(sample))
}

func (s *stacks) appendLocations(frames []storedFrame, locations []*pprof.Location) []storedFrame {
	for _, loc := range locations {
		frames = append(frames, s.at(loc)...)
	}
	if len(locations) == 0 {
		frames = append(frames, storedFrame{Method: methodOf(nil, nil)})
	}
	return frames
}

// own returns the locations of a sample without those of who ended the wait.
func (s *stacks) own(sample *pprof.Sample) []*pprof.Location {
	return sample.Location[s.wokenAt(sample)+1:]
}

// wokenAt returns where in a sample's locations the frame [woken by …] is, which is next to the wait's own innermost one; -1 if there is none.
func (s *stacks) wokenAt(sample *pprof.Sample) int {
	if !s.wakers || label(sample, stored.LabelWaker) == "" {
		return -1
	}
	return slices.IndexFunc(sample.Location, func(loc *pprof.Location) bool {
		f := s.at(loc)
		return len(f) == 1 && f[0].flags&^(inlined|called) == 0 && strings.HasPrefix(f[0].Name, profile.WokenBy)
	})
}

// at returns the frames of a location, which are made once.
func (s *stacks) at(loc *pprof.Location) []storedFrame {
	frames, known := s.frames[loc]
	if !known {
		frames = locationFrames(loc)
		s.frames[loc] = frames
	}
	return frames
}

// edge returns the call that the two innermost frames of a sample are: the outermost method is called by nobody.
func (s *stacks) edge(sample *pprof.Sample) CallEdge {
	callee := storedFrame{Method: methodOf(nil, nil)}
	caller := storedFrame{Method: nobody, site: stored.NoSite}
	found := 0
	for _, loc := range s.own(sample) {
		for _, f := range s.at(loc) {
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
	if !s.ofCalls() {
		caller.site.Offset = stored.NoSite.Offset // an address of code
	}
	return CallEdge{Caller: caller.Method, Site: caller.site, Callee: callee.Method}
}
