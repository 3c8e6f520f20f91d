package stacks

import (
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Names are the methods on the stacks of a profile, with the names that views have for them. They
// are not safe for concurrent use.
type Names struct {
	stacks Samples
	known  map[*pprof.Location][]string
}

// NewNames returns the names of a profile.
func NewNames(p *pprof.Profile) *Names {
	return &Names{
		stacks: Samples{Profile: p, frames: make(map[*pprof.Location][]Frame), wakers: hasWakers(p)},
		known:  make(map[*pprof.Location][]string),
	}
}

// Append appends the methods on the stack of a sample, innermost first, without those of a waker.
func (n *Names) Append(names []string, sample *pprof.Sample) []string {
	for _, loc := range n.stacks.Own(sample) {
		of, known := n.known[loc]
		if !known {
			for _, f := range n.stacks.At(loc) {
				of = append(of, f.Name)
			}
			n.known[loc] = of
		}
		names = append(names, of...)
	}
	return names
}

// Apart returns what says of samples that their values are not part of the sums of the profile:
// exact counts of what other samples estimate, waits for work at locks, and calls whose number is
// unknown.
func Apart(p *pprof.Profile) func(*pprof.Sample) bool {
	kind, ok := EventKindOf(p)
	switch {
	case ok && kind == profile.Locks:
		return func(s *pprof.Sample) bool { return !Contended(s) }
	case countedBesides(p):
		return Counted
	}
	return func(s *pprof.Sample) bool { return Label(s, stored.LabelBasis) == profile.Unmeasured.String() }
}

// SamplesWhere begins the comment of a profile that has only some samples of another one.
const SamplesWhere = "samples where "

// Where returns a profile with those samples of p for which keep is true. The metadata remains that
// of the whole profile, and a comment says what the samples are.
func Where(p *pprof.Profile, what string, keep func(*pprof.Sample) (bool, error)) (*pprof.Profile, error) {
	some := &pprof.Profile{
		SampleType: p.SampleType, DefaultSampleType: p.DefaultSampleType, Mapping: p.Mapping, Location: p.Location,
		Function: p.Function,
		Comments: slices.Clone(p.Comments), DropFrames: p.DropFrames, KeepFrames: p.KeepFrames, DocURL: p.DocURL,
		TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos, PeriodType: p.PeriodType, Period: p.Period,
	}
	for _, sample := range p.Sample {
		yes, err := keep(sample)
		if err != nil {
			return nil, err
		}
		if yes {
			some.Sample = append(some.Sample, sample)
		}
	}
	some.Comments = append(some.Comments, SamplesWhere+stored.Printable(what)+
		"; losses and notes cover all samples")
	return some, nil
}

// MethodNames names methods for people: with the types of its arguments where a method is
// overloaded. All methods are added before the first is named.
type MethodNames struct {
	systemNames map[string]string // system name of the method with a name, "" if there are several
}

func NewMethodNames() MethodNames { return MethodNames{make(map[string]string)} }

func (n MethodNames) Add(m Method) {
	systemName, known := n.systemNames[m.Name]
	if !known {
		n.systemNames[m.Name] = m.SystemName
	} else if systemName != m.SystemName {
		n.systemNames[m.Name] = ""
	}
}

func (n MethodNames) Name(m Method) string {
	end := strings.LastIndexByte(m.SystemName, ')')
	if n.systemNames[m.Name] != "" || !strings.HasPrefix(m.SystemName, m.Name+"(") || end < 0 {
		return m.Name
	}
	return m.SystemName[:end+1] // without the result of a Java method, which says little
}

// SiteNames distinguishes call sites of one method for people: by line, and by offset where a line
// has several. All sites are added before the first is named.
type SiteNames struct {
	offsets map[lineOf]int32 // offset of the site on a line, or the constant several
}

type lineOf struct {
	caller string
	line   int32
}

// several is no offset, and not that of an unknown one.
const several = -2

func NewSiteNames() SiteNames { return SiteNames{make(map[lineOf]int32)} }

func (n SiteNames) Add(caller string, s profile.Site) {
	at := lineOf{caller, s.Line}
	offset, known := n.offsets[at]
	if !known {
		n.offsets[at] = s.Offset
	} else if offset != s.Offset {
		n.offsets[at] = several
	}
}

// Suffix is what follows the name of the caller: ":12", or ":12@34".
func (n SiteNames) Suffix(caller string, s profile.Site) (suffix string) {
	if s.Line > 0 {
		suffix = fmt.Sprintf(":%d", s.Line)
	}
	if s.Offset >= 0 && (s.Line == 0 || n.offsets[lineOf{caller, s.Line}] == several) {
		suffix += fmt.Sprintf("@%d", s.Offset)
	}
	return suffix
}
