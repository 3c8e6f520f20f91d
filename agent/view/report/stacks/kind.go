package stacks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// TypeIndex returns the column of the values of a type, or -1.
func TypeIndex(p *pprof.Profile, sampleType string) int {
	return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == sampleType })
}

// TypeList names the types of a profile.
func TypeList(p *pprof.Profile) string {
	if len(p.SampleType) == 0 {
		return "none"
	}
	names := make([]string, 0, len(p.SampleType))
	for _, t := range p.SampleType {
		names = append(names, stored.Printable(t.Type))
	}
	return strings.Join(names, " or ")
}

func unitOf(t *pprof.ValueType) string {
	if cost, ok := stored.CostOf(t); ok {
		return cost.Name
	}
	return stored.Printable(t.Type)
}

// ColumnOf returns the column of the values of a type, or -1.
func ColumnOf(p *pprof.Profile, of *pprof.ValueType) int {
	return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool {
		return t.Type == of.Type && t.Unit == of.Unit
	})
}

// MainType returns the sample type to show: samples, or whatever another profiler, or a profile of
// calls or of events, has as the default.
func MainType(p *pprof.Profile) (string, error) {
	if len(p.SampleType) == 0 {
		return "", errors.New("the profile has no values")
	}
	if HasTime(p) {
		return stored.TypeSamples, nil
	}
	index, err := p.SampleIndexByName("")
	if err != nil {
		return "", fmt.Errorf("choose a sample type: %w", err)
	}
	return p.SampleType[index].Type, nil
}

// TimeType returns the sample type for sums of methods and threads: as MainType, but CPU time
// instead of samples. Not all samples stand for the same time, and some time has no sample.
func TimeType(p *pprof.Profile) (string, error) {
	main, err := MainType(p)
	if main == stored.TypeSamples && Sum(p, stored.TypeCPU, nil) > 0 {
		main = stored.TypeCPU
	}
	return main, err
}

func isCalls(t *pprof.ValueType) bool {
	return t.Type == stored.TypeCalls && t.Unit == stored.UnitCount
}

// HasCalls says that a stored profile has a sample type for calls, though maybe none of them.
func HasCalls(p *pprof.Profile) bool { return slices.ContainsFunc(p.SampleType, isCalls) }

// HoldsCalls says that a stored profile has calls.
func HoldsCalls(p *pprof.Profile) bool {
	return HasCalls(p) && AnyCalls(p, func(*pprof.Sample) bool { return true })
}

// HoldsContexts says that a stored profile has calls with their whole context. Sampled edges have
// two frames.
func HoldsContexts(p *pprof.Profile) bool { return HasCalls(p) && AnyCalls(p, HasContext) }

// HasContext says of a sample of calls that it is a whole stack: one of ours, or whatever another
// profiler wrote.
func HasContext(s *pprof.Sample) bool {
	engine := Label(s, stored.LabelEngine)
	return engine == "" || engine == stored.ExactEngine
}

func AnyCalls(p *pprof.Profile, which func(*pprof.Sample) bool) bool {
	index := TypeIndex(p, stored.TypeCalls)
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 && which(s) })
}

// HasTime says that a stored profile has a sample type for samples.
func HasTime(p *pprof.Profile) bool { return TypeIndex(p, stored.TypeSamples) >= 0 }

// HasEntries reports whether a stored profile counts how often samples found contexts newly
// entered.
func HasEntries(p *pprof.Profile) bool {
	index := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool {
		return t.Type == stored.TypeEntries && t.Unit == stored.UnitCount
	})
	return index >= 0 && slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 })
}

// EventKindOf returns the kind of events that a stored profile is of; ok is false if it is of none.
func EventKindOf(p *pprof.Profile) (kind profile.EventKind, ok bool) {
	for kind := range profile.EventKinds {
		types, _ := stored.EventTypes(kind)
		if !slices.ContainsFunc(types, func(t *pprof.ValueType) bool { return ColumnOf(p, t) < 0 }) {
			return kind, true
		}
	}
	return 0, false
}

func hasWakers(p *pprof.Profile) bool {
	return slices.ContainsFunc(p.Sample, func(sample *pprof.Sample) bool {
		return Label(sample, stored.LabelWaker) != ""
	})
}

// countedBesides says that a profile has events of which each one was counted next to those that
// were sampled: the same ones again.
func countedBesides(p *pprof.Profile) bool {
	if kind, ok := EventKindOf(p); !ok || kind != profile.Allocations {
		return false
	}
	return slices.ContainsFunc(p.Sample, sampled) && slices.ContainsFunc(p.Sample, Counted)
}
