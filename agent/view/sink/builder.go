package sink

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unique"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// frameMapping returns the mapping of frame under a name that has its kind, or nothing for what is
// not code.
func frameMapping(frame symbol.Frame) symbol.Mapping {
	var m symbol.Mapping
	if frame.Mapping != (unique.Handle[symbol.Mapping]{}) { // the zero handle has no value
		m = frame.Mapping.Value()
	}
	var kind string
	switch frame.Kind {
	case symbol.KindMarker:
		return symbol.Mapping{}
	case symbol.KindJIT:
		kind = stored.MappingJIT
	case symbol.KindInterpreted:
		kind = stored.MappingInterpreter
	case symbol.KindStub:
		kind = stored.MappingStub
	case symbol.KindKernel:
		kind = stored.MappingKernel
	default:
		return m
	}
	if strings.HasPrefix(m.File, kind) {
		return m
	}
	// [jit:HotSpot], where an interpreted frame is, becomes [interpreter:HotSpot]; the module
	// [nf_tables] becomes [kernel:nf_tables].
	owner := strings.Trim(m.File, "[]")
	if _, vm, ok := strings.Cut(owner, ":"); ok {
		owner = vm
	} else if frame.Kind != symbol.KindKernel {
		owner = ""
	}
	m.File = kind + "]"
	if owner != "" {
		m.File = kind + ":" + owner + "]"
	}
	return m
}

// A pprofBuilder holds the tables of a pprof profile, each entry once.
type pprofBuilder struct {
	profile   *pprof.Profile
	content   Content
	window    int64         // the number of the window that is being added, 0 if there is one only
	period    time.Duration // CPU time that a sample stands for
	accounts  accounts
	mappings  map[symbol.Mapping]*pprof.Mapping
	functions map[functionKey]*pprof.Function
	places    map[symbol.Symbol]place // by symbol without its address
	locations map[locationKey]*pprof.Location
}

type functionKey struct {
	name, systemName, file string
	startLine              int64
}

// locationKey identifies a location by its outermost line and, recursively, by what is inlined
// there. What pprof cannot distinguish is one location.
type locationKey struct {
	inlined  *pprof.Location
	function *pprof.Function
	mapping  *pprof.Mapping // nil if there is none
	address  uint64
	line     int64
}

// A place is where the frames of one symbol are, whatever their addresses.
type place struct {
	function *pprof.Function
	mapping  *pprof.Mapping
	line     int64
}

func newPprofBuilder(content Content) *pprofBuilder {
	types, first := content.sampleTypes()
	return &pprofBuilder{
		profile:   &pprof.Profile{SampleType: types, DefaultSampleType: first},
		content:   content,
		mappings:  make(map[symbol.Mapping]*pprof.Mapping),
		functions: make(map[functionKey]*pprof.Function),
		places:    make(map[symbol.Symbol]place),
		locations: make(map[locationKey]*pprof.Location),
	}
}

// location returns the location in which the frame of a symbol encloses the lines of inlined, which
// is nil or a location that is not complete: it is only in the profile once it went through
// complete.
func (b *pprofBuilder) location(inlined *pprof.Location, symbol symbol.Symbol) *pprof.Location {
	at := b.place(symbol)
	key := locationKey{inlined, at.function, at.mapping, symbol.Address(), at.line}
	loc := b.locations[key]
	if loc == nil {
		loc = &pprof.Location{Address: key.address, Mapping: key.mapping}
		if inlined != nil {
			loc.Line = append(make([]pprof.Line, 0, len(inlined.Line)+1), inlined.Line...)
		}
		loc.Line = append(loc.Line, pprof.Line{Function: key.function, Line: key.line})
		b.locations[key] = loc
	}
	return loc
}

// place returns where frames of a symbol are.
func (b *pprofBuilder) place(s symbol.Symbol) place {
	s = s.WithoutAddress()
	at, known := b.places[s]
	if !known {
		frame := s.Value()
		at = place{function: b.function(frame), line: int64(max(frame.Line, 0))}
		m := frameMapping(frame)
		if b.content&Time == 0 {
			m = m.WithoutVersion()
		}
		if m != (symbol.Mapping{}) {
			at.mapping = b.mapping(m)
		}
		b.places[s] = at
	}
	return at
}

// complete enters loc into the profile.
func (b *pprofBuilder) complete(loc *pprof.Location) *pprof.Location {
	if loc.ID == 0 {
		b.profile.Location = append(b.profile.Location, loc)
		loc.ID = uint64(len(b.profile.Location))
	}
	return loc
}

func (b *pprofBuilder) function(frame symbol.Frame) *pprof.Function {
	key := functionKey{stored.Printable(frame.Function), stored.Printable(frame.SystemName),
		stored.Printable(frame.File), int64(max(frame.StartLine, 0))}
	if key.name == "" {
		key.name = stored.Unnamed
	}
	if key.systemName == "" {
		key.systemName = key.name
	}
	f := b.functions[key]
	if f == nil {
		f = &pprof.Function{Name: key.name, SystemName: key.systemName, Filename: key.file, StartLine: key.startLine}
		b.functions[key] = f
		b.profile.Function = append(b.profile.Function, f)
		f.ID = uint64(len(b.profile.Function))
	}
	return f
}

func (b *pprofBuilder) mapping(m symbol.Mapping) *pprof.Mapping {
	entry := b.mappings[m]
	if entry == nil {
		entry = &pprof.Mapping{
			File:         stored.Printable(m.File),
			BuildID:      stored.Printable(m.BuildID),
			Start:        m.Start,
			Limit:        m.Limit,
			Offset:       m.Offset | stored.VersionOffset(m.Version),
			HasFunctions: true, // unless describeMappings finds one that has no name
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
		// Then pprof looks for names in the file, or in one with its build id, when it shows the
		// profile.
		if len(loc.Line) == 1 && stored.IsUnnamed(loc.Line[0].Function.Name) && filepath.IsAbs(m.File) {
			m.HasFunctions = false
		}
		for _, line := range loc.Line {
			m.HasFilenames = m.HasFilenames || line.Function.Filename != ""
			m.HasLineNumbers = m.HasLineNumbers || line.Line > 0
		}
	}
}

// programs are the processes in a profile, to find the one that a reader most likely cares for.
type programs struct {
	order []program
	ranks map[program]programRank
}

type program struct {
	pid        int
	executable symbol.Mapping
}

type programRank struct {
	managed int // 1 for a process with a managed runtime
	samples uint64
	calls   float64
	events  uint64
}

func (s *programs) add(p *profile.Profile) {
	if s.ranks == nil {
		s.ranks = make(map[program]programRank)
	}
	for _, proc := range p.Processes {
		id := program{proc.PID, proc.Executable}
		rank, known := s.ranks[id]
		if !known {
			s.order = append(s.order, id)
		}
		if proc.Runtime != "" {
			rank.managed = 1
		}
		for _, thread := range proc.Threads {
			if thread.Tree != nil {
				rank.samples += thread.Tree.Total()
			}
		}
		for _, c := range proc.Calls {
			rank.calls += c.Graph.Total()
		}
		for _, e := range proc.Events {
			rank.events += countEvents(e)
		}
		s.ranks[id] = rank
	}
}

// busiest returns the executable of the process with most samples, or else most calls, or else most
// events, of a managed runtime if there is one. It is zero without any process.
func (s *programs) busiest() symbol.Mapping {
	if len(s.order) == 0 {
		return symbol.Mapping{}
	}
	return slices.MaxFunc(s.order, func(a, b program) int {
		rankA, rankB := s.ranks[a], s.ranks[b]
		return cmp.Or(cmp.Compare(rankA.managed, rankB.managed), cmp.Compare(rankA.samples, rankB.samples),
			cmp.Compare(rankA.calls, rankB.calls), cmp.Compare(rankA.events, rankB.events))
	}).executable
}
