package sink

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// stacks are the samples of a stored profile by one of its values, which are known to be positive and to add up to
// less than 2^63.
type stacks struct {
	profile *pprof.Profile
	index   int // of the value in Sample.Value
	total   uint64
	keep    func(*pprof.Sample) bool // nil for all
	frames  map[*pprof.Location][]storedFrame
}

// newStacks fails if there are no values of that type or if they cannot be added up.
func newStacks(p *pprof.Profile, sampleType string) (*stacks, error) {
	s := &stacks{profile: p, index: typeIndex(p, sampleType), frames: make(map[*pprof.Location][]storedFrame)}
	if s.index < 0 {
		return nil, fmt.Errorf("the profile has no values of type %s: choose %s", printable(sampleType), typeList(p))
	}
	for _, sample := range p.Sample {
		value := sample.Value[s.index]
		if value < 0 {
			return nil, errors.New("the profile has negative values, as differences of profiles do: compare with go tool pprof instead")
		}
		if uint64(value) > math.MaxInt64-s.total {
			return nil, errors.New("the values of the profile add up to more than 63 bits")
		}
		s.total += uint64(value)
	}
	if countedBesides(p) {
		s.keep = sampled
	}
	return s, nil
}

// countedBesides says that a profile has events of which each one was counted beside those that were sampled: the same ones
// again.
func countedBesides(p *pprof.Profile) bool {
	if kind, ok := EventKindOf(p); !ok || kind != profile.Allocations {
		return false
	}
	return slices.ContainsFunc(p.Sample, sampled) && slices.ContainsFunc(p.Sample, counted)
}

// counted says of a sample of events that each one was counted.
func counted(sample *pprof.Sample) bool { return label(sample, labelKind) == exactEngine }

func sampled(sample *pprof.Sample) bool { return !counted(sample) }

// typeIndex returns the column of the values of a type, or -1.
func typeIndex(p *pprof.Profile, sampleType string) int {
	return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == sampleType })
}

// typeList names the types of a profile.
func typeList(p *pprof.Profile) string {
	if len(p.SampleType) == 0 {
		return "none"
	}
	names := make([]string, 0, len(p.SampleType))
	for _, t := range p.SampleType {
		names = append(names, printable(t.Type))
	}
	return strings.Join(names, " or ")
}

// unit is what the values count.
func (s *stacks) unit() string { return printable(s.profile.SampleType[s.index].Type) }

// amount writes a sum of values for people.
func (s *stacks) amount(value float64) string { return amount(s.profile.SampleType[s.index], value) }

// leaveWaits leaves out the waits for work if the values are delays by locks, which would drown in them. It returns how
// long these waits were.
func (s *stacks) leaveWaits() (waited uint64) {
	if kind, ok := EventKindOf(s.profile); !ok || kind != profile.Locks || s.unit() != mainValue(profile.Locks).Type {
		return 0
	}
	for sample, value := range s.all() {
		if !contended(sample) {
			waited += value
		}
	}
	s.keep = contended
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

// appendFrames appends the frames of a sample, innermost first, and at least one.
func (s *stacks) appendFrames(frames []storedFrame, sample *pprof.Sample) []storedFrame {
	for _, loc := range sample.Location {
		frames = append(frames, s.at(loc)...)
	}
	if len(sample.Location) == 0 {
		frames = append(frames, storedFrame{Method: methodOf(nil, nil)})
	}
	return frames
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
	caller := storedFrame{Method: nobody, site: noSite}
	found := 0
	for _, loc := range sample.Location {
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
		caller.site.Offset = noSite.Offset // an address of code
	}
	return CallEdge{Caller: caller.Method, Site: caller.site, Callee: callee.Method}
}
