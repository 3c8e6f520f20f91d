package sink

import (
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A pprofBuilder holds the tables of a pprof profile, each entry once.
type pprofBuilder struct {
	profile   *pprof.Profile
	content   Content
	window    int64         // the number of the window that is being added, 0 if there is one only
	period    time.Duration // of CPU time that a sample stands for
	accounts  accounts
	mappings  map[symbolize.Mapping]*pprof.Mapping
	functions map[functionKey]*pprof.Function
	locations map[locationKey]*pprof.Location
}

type functionKey struct{ name, systemName, file string }

// locationKey identifies a location by its outermost line and, recursively, by what is inlined there.
type locationKey struct {
	inlined *pprof.Location
	frame   symbolize.Frame
}

func newPprofBuilder(content Content) *pprofBuilder {
	types, first := content.sampleTypes()
	return &pprofBuilder{
		profile:   &pprof.Profile{SampleType: types, DefaultSampleType: first},
		content:   content,
		mappings:  make(map[symbolize.Mapping]*pprof.Mapping),
		functions: make(map[functionKey]*pprof.Function),
		locations: make(map[locationKey]*pprof.Location),
	}
}

// location returns the location in which frame encloses the lines of inlined, which is nil or a location that
// is not complete: it is only in the profile once it went through complete.
func (b *pprofBuilder) location(inlined *pprof.Location, frame symbolize.Frame) *pprof.Location {
	// What pprof cannot tell apart is one location.
	frame.Approximate, frame.Inlined = false, false
	key := locationKey{inlined, frame}
	loc := b.locations[key]
	if loc == nil {
		loc = &pprof.Location{Address: frame.Address}
		if inlined != nil {
			loc.Line = append(loc.Line, inlined.Line...)
		}
		loc.Line = append(loc.Line, pprof.Line{Function: b.function(frame), Line: int64(max(frame.Line, 0))})
		if m := frameMapping(frame); m != (symbolize.Mapping{}) {
			loc.Mapping = b.mapping(m)
		}
		b.locations[key] = loc
	}
	return loc
}

// complete enters loc into the profile.
func (b *pprofBuilder) complete(loc *pprof.Location) *pprof.Location {
	if loc.ID == 0 {
		b.profile.Location = append(b.profile.Location, loc)
		loc.ID = uint64(len(b.profile.Location))
	}
	return loc
}

func (b *pprofBuilder) function(frame symbolize.Frame) *pprof.Function {
	key := functionKey{printable(frame.Function), printable(frame.SystemName), printable(frame.File)}
	if key.name == "" {
		key.name = unnamed
	}
	if key.systemName == "" {
		key.systemName = key.name
	}
	f := b.functions[key]
	if f == nil {
		f = &pprof.Function{Name: key.name, SystemName: key.systemName, Filename: key.file}
		b.functions[key] = f
		b.profile.Function = append(b.profile.Function, f)
		f.ID = uint64(len(b.profile.Function))
	}
	return f
}

func (b *pprofBuilder) mapping(m symbolize.Mapping) *pprof.Mapping {
	entry := b.mappings[m]
	if entry == nil {
		entry = &pprof.Mapping{
			File:    printable(m.File),
			BuildID: printable(m.BuildID),
			Start:   m.Start,
			Limit:   m.Limit,
			Offset:  m.Offset,
			// Said of every mapping, also where names are missing: what could be named was.
			HasFunctions: true,
		}
		b.mappings[m] = entry
		b.profile.Mapping = append(b.profile.Mapping, entry)
		entry.ID = uint64(len(b.profile.Mapping))
	}
	return entry
}

// first puts a mapping before all others.
func (b *pprofBuilder) first(m *pprof.Mapping) {
	at := slices.Index(b.profile.Mapping, m)
	b.profile.Mapping = slices.Insert(slices.Delete(b.profile.Mapping, at, at+1), 0, m)
	for i, m := range b.profile.Mapping {
		m.ID = uint64(i + 1)
	}
}

// describeMappings says of each mapping what its locations turned out to have.
func (b *pprofBuilder) describeMappings() {
	for _, loc := range b.profile.Location {
		m := loc.Mapping
		if m == nil {
			continue
		}
		m.HasInlineFrames = m.HasInlineFrames || len(loc.Line) > 1
		for _, line := range loc.Line {
			m.HasFilenames = m.HasFilenames || line.Function.Filename != ""
			m.HasLineNumbers = m.HasLineNumbers || line.Line > 0
		}
	}
}
