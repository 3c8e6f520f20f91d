package report

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// frameFlags say how a method was executed, and how its context was found.
type frameFlags uint16

const (
	interpreted frameFlags = 1 << iota
	jit
	stub
	native
	kernel
	inlined // into its caller
	called  // really, in a frame of its own

	ambiguous // of profile.Certainty
	fitted
	unplaced
)

// uncertain are those that doubt the context.
const uncertain = ambiguous | fitted | unplaced

// marks are the letters of frameFlags.
var marks = [...]struct {
	flags         frameFlags
	letter, means string
}{
	{interpreted, "i", "interpreted"},
	{jit, "j", "compiled"},
	{stub, "s", "VM stub"},
	{native, "n", "native"},
	{kernel, "k", "kernel"},
	{ambiguous, "a", "partly ambiguous"},
	{fitted, "f", "partly fitted"},
	{unplaced, "u", "partly unplaced"},
}

// certaintyOf says how the context of a stored sample was found: 0 if it is certain, or nothing is said.
func certaintyOf(sample *pprof.Sample) frameFlags {
	switch label(sample, stored.LabelContext) {
	case profile.Ambiguous.String():
		return ambiguous
	case profile.Fitted.String():
		return fitted
	case profile.Unplaced.String():
		return unplaced
	}
	return 0
}

// String returns the marks in brackets, or nothing.
func (h frameFlags) String() string {
	var letters string
	for _, m := range marks {
		if h&m.flags != 0 {
			letters += m.letter
		}
	}
	if letters == "" {
		return ""
	}
	return "[" + letters + "]"
}

// legend explains the marks, in their order.
func (h frameFlags) legend() string {
	var list []string
	for _, m := range marks {
		if h&m.flags != 0 {
			list = append(list, m.letter+" "+m.means)
		}
	}
	return strings.Join(list, ", ")
}

// mappingFlags reads back what frameMapping wrote.
func mappingFlags(m *pprof.Mapping) frameFlags {
	switch {
	case m == nil || m.File == "":
		return 0
	case strings.HasPrefix(m.File, stored.MappingJIT):
		return jit
	case strings.HasPrefix(m.File, stored.MappingInterpreter):
		return interpreted
	case strings.HasPrefix(m.File, stored.MappingStub):
		return stub
	case strings.HasPrefix(m.File, stored.MappingKernel):
		return kernel
	}
	return native
}

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

func hasWakers(p *pprof.Profile) bool {
	return slices.ContainsFunc(p.Sample, func(sample *pprof.Sample) bool { return label(sample, stored.LabelWaker) != "" })
}

// countedBesides says that a profile has events of which each one was counted next to those that were sampled: the same ones
// again.
func countedBesides(p *pprof.Profile) bool {
	if kind, ok := EventKindOf(p); !ok || kind != profile.Allocations {
		return false
	}
	return slices.ContainsFunc(p.Sample, sampled) && slices.ContainsFunc(p.Sample, counted)
}

// counted says of a sample of events that each one was counted.
func counted(sample *pprof.Sample) bool { return label(sample, stored.LabelKind) == stored.ExactEngine }

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
		names = append(names, stored.Printable(t.Type))
	}
	return strings.Join(names, " or ")
}

// unit is what the values count: for costs the name of the model.
func (s *stacks) unit() string { return unitOf(s.profile.SampleType[s.index]) }

func unitOf(t *pprof.ValueType) string {
	if cost, ok := stored.CostOf(t); ok {
		return cost.Name
	}
	return stored.Printable(t.Type)
}

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

// busy says that the sample's thread has something to do.
func busy(sample *pprof.Sample) bool { return label(sample, stored.LabelCause) != cause.Idle }

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

// A Method is a method as stored profiles know it. Profiles of different runs agree on it. Its strings are printable.
type Method struct {
	Name       string // for people, without a signature
	SystemName string // as the VM or the linker has it; Name if that is not stored
	// Native is set for code that is not of the program: of a file, of the kernel, or generated by the VM for itself.
	Native bool
}

// nobody is the caller of outermost frames.
var nobody = Method{Name: "[none]", SystemName: "[none]"}

// A storedFrame is one line of a location.
type storedFrame struct {
	Method
	flags frameFlags
	site  profile.Site // of the call that the next inner frame is of; its offset only holds in samples of calls
}

// locationFrames returns the frames of a location, innermost first. There is at least one.
func locationFrames(loc *pprof.Location) []storedFrame {
	kind := mappingFlags(loc.Mapping)
	lines := loc.Line
	if len(lines) == 0 {
		lines = make([]pprof.Line, 1)
	}
	frames := make([]storedFrame, len(lines))
	for i, line := range lines {
		f := storedFrame{flags: kind | inlined, site: stored.SiteOf(line.Line, 0)}
		if i == len(lines)-1 {
			f.flags = kind | called
		}
		if len(lines) == 1 {
			f.site = stored.SiteOf(line.Line, loc.Address)
		}
		f.Method = methodOf(line.Function, loc.Mapping)
		f.Native = kind&(native|stub|kernel) != 0
		frames[i] = f
	}
	return frames
}

// methodOf names the function f of mapping m. Both may be nil.
func methodOf(f *pprof.Function, m *pprof.Mapping) Method {
	var name Method
	if f != nil {
		name = Method{Name: stored.Printable(f.Name), SystemName: stored.Printable(f.SystemName)}
	}
	if name.Name == "" {
		name.Name = stored.Unnamed
	}
	if name.Name == stored.Unnamed && m != nil && m.File != "" {
		name.Name += " " + stored.Printable(filepath.Base(m.File))
		name.SystemName = ""
	}
	if name.SystemName == "" {
		name.SystemName = name.Name
	}
	return name
}
