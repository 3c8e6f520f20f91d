package stored

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Metadata is what a profile of the agent says about itself and pprof has no field for. It is one
// comment of the file, as JSON behind a mark; [Metadata.Sentences] are further comments, which are
// for people and are never read back.
//
// All strings are printable once the metadata was read, and all numbers are in their ranges; they
// need not fit together.
type Metadata struct {
	Account         // account of all windows together
	Totals  []Total `json:"totals,omitempty"` // totals of events, one for each process
	// Extents has each process of which it is known how much there was to observe.
	Extents  []Extent    `json:"extents,omitempty"`
	Basis    []Note      `json:"basis,omitempty"`    // how the values of events were obtained
	Sampling []Sampling  `json:"sampling,omitempty"` // for time and calls: what was sampled, mostly one
	Remarks  []string    `json:"remarks,omitempty"`  // profile.Profile.Comments, of all windows, each once
	Windows  []Window    `json:"windows,omitempty"`  // nil unless there are several
	Calls    []CallTotal `json:"calls,omitempty"`    // one for each engine, basis and rate
	// Contexts has each process and window of which not every stack was walked.
	Contexts []ProcessContexts `json:"contexts,omitempty"`
	// Rounding is what is missing because values are whole numbers of 63 bits.
	Rounding []Rounding `json:"rounding,omitempty"`
	Notes    []Note     `json:"notes,omitempty"`    // profile.Process.Notes, each once
	Versions []Version  `json:"versions,omitempty"` // versions of the code of all processes: see VersionOf
	Inlining []Inlining `json:"inlining,omitempty"` // one for each process whose calls were estimated
	Methods  []string   `json:"methods,omitempty"`  // names that Versions and Inlining refer to
	Lanes    []Lanes    `json:"lanes,omitempty"`    // lanes of each process and window, if waits were recorded
	Followed string     `json:"followed,omitempty"` // the method of TypeSlow
	LeftOut  int        `json:"left_out,omitempty"` // remarks, notes and the like that were too many
}

// An Account is what was recorded and lost: of samples, or of events.
type Account struct {
	Samples profile.Counts `json:"samples,omitzero"`
	Events  *EventAccount  `json:"events,omitempty"` // nil unless the profile is of events
}

// An EventAccount is what was recorded and lost of events.
type EventAccount struct {
	Kind     profile.EventKind   `json:"kind"`
	Observed uint64              `json:"observed"` // events of the kind
	Mixed    bool                `json:"mixed,omitempty"`
	Counts   profile.EventCounts `json:"counts"` // sums over all kinds if Mixed
}

// A Total is the sum of the main value of a process's events, without rows that stand apart, and
// how far off it may be.
type Total struct {
	Comm     string        `json:"comm"`
	PID      int64         `json:"pid"`
	Sum      float64       `json:"sum"`
	Within   Bound         `json:"within"`         // half of the 95 % interval; 0 if the sum is exact
	Time     time.Duration `json:"time,omitempty"` // see profile.Coverage, as all below
	Observed time.Duration `json:"observed,omitempty"`
	Slices   int           `json:"slices,omitempty"`
	Missed   time.Duration `json:"missed,omitempty"`
	Lost     float64       `json:"lost,omitempty"`
}

// A Bound is a number of at least 0, or +Inf, which JSON has as null.
type Bound float64

// MarshalJSON implements json.Marshaler.
func (b Bound) MarshalJSON() ([]byte, error) {
	if math.IsInf(float64(b), 0) || math.IsNaN(float64(b)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(b))
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *Bound) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*b = Bound(math.Inf(1))
		return nil
	}
	return json.Unmarshal(data, (*float64)(b))
}

// A Note is what a reader must know about some processes of one name.
type Note struct {
	Comm string  `json:"comm"`
	PIDs []int64 `json:"pids"` // the first MaxNotePIDs of them
	More int     `json:"more,omitempty"`
	Text string  `json:"text"`
}

// MaxNotePIDs bounds Note.PIDs.
const MaxNotePIDs = 5

// Sampling is what one sample stands for.
type Sampling struct {
	Event  string        `json:"event"`
	Period time.Duration `json:"period"` // CPU time between samples
}

// A Window is one of several consecutive windows in a profile.
type Window struct {
	Number   int64         `json:"number"` // from 1
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration"`
	Account
}

// A CallTotal is how many calls an engine recorded on one basis at one rate, in all processes and
// windows.
type CallTotal struct {
	Engine   string        `json:"engine"`
	Basis    profile.Basis `json:"basis"`
	Rate     profile.Rate  `json:"rate,omitzero"`
	Calls    float64       `json:"calls"`
	Overflow float64       `json:"overflow,omitempty"` // calls that found no room in their graph
}

// ProcessContexts reports how the contexts of one process were found, in one window if there are
// several.
type ProcessContexts struct {
	Comm   string `json:"comm"`
	PID    int64  `json:"pid"`
	Window int64  `json:"window,omitempty"` // 0 if the profile is of one window
	profile.Contexts
}

// A Rounding is what is missing of one process: edges with less than one call each, or, without an
// engine, the sums of values, as they are too large.
type Rounding struct {
	Comm   string        `json:"comm"`
	PID    int64         `json:"pid"`
	Engine string        `json:"engine,omitempty"`
	Basis  profile.Basis `json:"basis,omitempty"`
	Edges  int           `json:"edges,omitempty"`
}

const (
	// mark begins the comment that is the metadata. pprof leaves comments that begin with # out of
	// its headings.
	mark = "#vmprof-agent metadata "
	// format is the version of the encoding. It changes when readers would misunderstand what they
	// do not know.
	format = 1
)

// Bounds of the metadata of one profile. A comment of two bytes could otherwise take a hundred
// times the memory.
const (
	maxEncoded = 128 << 20 // bytes
	maxObjects = 1 << 19
	maxFields  = 1 << 22 // commas: fields and elements of lists
	// MaxWindows is how many windows a profile may have.
	MaxWindows  = 4096
	maxContexts = 1 << 17
	maxList     = 1 << 14 // entries of any other list
)

// ErrNone is the error of MetadataOf for a profile without metadata: of another profiler, of an
// earlier version of the agent, or merged from several files.
var ErrNone = errors.New("none: another profiler or an earlier version of the agent wrote the profile, or a tool " +
	"merged several profiles")

// encoded is the JSON form.
type encoded struct {
	Format int `json:"format"`
	*Metadata
}

// Store makes the sentences and the metadata the comments of a profile.
func (m *Metadata) Store(p *pprof.Profile) error {
	m.tidy()
	var text strings.Builder
	text.WriteString(mark)
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(encoded{format, m}); err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	p.Comments = append(m.Sentences(), strings.TrimSuffix(text.String(), "\n"))
	return nil
}

// MetadataOf returns the metadata of a profile, or ErrNone. It also fails if the metadata is
// malformed, or more than a profile of the agent has.
func MetadataOf(p *pprof.Profile) (*Metadata, error) {
	text := ""
	for _, comment := range p.Comments {
		if !IsMetadata(comment) {
			continue
		}
		if text != "" {
			return nil, ErrNone
		}
		text = comment
	}
	if text == "" {
		return nil, ErrNone
	}
	return decode([]byte(text[len(mark):]))
}

// IsMetadata reports whether a comment is metadata.
func IsMetadata(comment string) bool { return strings.HasPrefix(comment, mark) }

// MaxComments bounds the comments that readers show and keep; a profile of our own has a few.
const MaxComments = 100

// OtherComments are the comments of a profile that are neither its metadata nor made of it; m is
// nil for none. Other tools may have added them.
func OtherComments(p *pprof.Profile, m *Metadata) []string {
	var own []string
	if m != nil {
		own = m.Sentences()
	}
	known := make(map[string]bool, len(own))
	for _, sentence := range own {
		known[sentence] = true
	}
	return slices.DeleteFunc(slices.Clone(p.Comments), func(c string) bool { return known[c] || IsMetadata(c) })
}

func decode(data []byte) (*Metadata, error) {
	if len(data) > maxEncoded || bytes.Count(data, []byte("{")) > maxObjects ||
		bytes.Count(data, []byte(",")) > maxFields {
		return nil, errors.New("too large")
	}
	e := encoded{Metadata: new(Metadata)}
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("malformed: %w", err)
	}
	if e.Format != format {
		return nil, fmt.Errorf("unknown format %d: this version of the agent reads format %d", e.Format, format)
	}
	e.tidy()
	return e.Metadata, nil
}

// tidy makes strings printable, brings numbers into their ranges, and shortens lists that are too
// long.
func (m *Metadata) tidy() {
	m.Account.tidy()
	m.Totals = shorten(m, m.Totals, maxList)
	for i := range m.Totals {
		t := &m.Totals[i]
		t.Comm = Printable(t.Comm)
		t.Sum, t.Within, t.Lost = finite(t.Sum), max(t.Within, 0), min(max(finite(t.Lost), 0), 1)
		t.Time, t.Observed, t.Missed, t.Slices = max(t.Time, 0), max(t.Observed, 0), max(t.Missed, 0), max(t.Slices, 0)
	}
	m.tidyExtents()
	m.Basis, m.Notes = m.shortenNotes(m.Basis), m.shortenNotes(m.Notes)
	m.Sampling = shorten(m, m.Sampling, maxList)
	for i := range m.Sampling {
		m.Sampling[i].Event = Printable(m.Sampling[i].Event)
	}
	m.Remarks = shorten(m, m.Remarks, maxList)
	for i := range m.Remarks {
		m.Remarks[i] = Printable(m.Remarks[i])
	}
	m.Windows = shorten(m, slices.DeleteFunc(m.Windows, func(w Window) bool { return w.Number < 1 }), MaxWindows)
	for i := range m.Windows {
		w := &m.Windows[i]
		w.Account.tidy()
		w.Duration = max(w.Duration, 0)
		if y := w.Start.Year(); y < 1 || y > 9999 { // RFC 3339 has no others
			w.Start = time.Time{}
		}
		w.Start = w.Start.UTC()
	}
	m.Calls = shorten(m, m.Calls, maxList)
	for i := range m.Calls {
		c := &m.Calls[i]
		c.Engine = Printable(c.Engine)
		c.Calls, c.Overflow = finite(c.Calls), finite(c.Overflow)
	}
	m.Contexts = shorten(m, m.Contexts, maxContexts)
	for i := range m.Contexts {
		c := &m.Contexts[i]
		c.Comm, c.Window = Printable(c.Comm), max(c.Window, 0)
		c.Nodes, c.Shared, c.Methods = max(c.Nodes, 0), max(c.Shared, 0), max(c.Methods, 0)
	}
	m.Rounding = shorten(m, m.Rounding, maxList)
	for i := range m.Rounding {
		r := &m.Rounding[i]
		r.Comm, r.Engine, r.Edges = Printable(r.Comm), Printable(r.Engine), max(r.Edges, 0)
	}
	m.tidyVersions()
	m.tidyInlining()
	m.tidyLanes()
	m.Followed = Printable(m.Followed)
	m.LeftOut = max(m.LeftOut, 0)
}

func (m *Metadata) shortenNotes(list []Note) []Note {
	list = shorten(m, list, maxList)
	for i := range list {
		n := &list[i]
		n.Comm, n.Text, n.More = Printable(n.Comm), Printable(n.Text), max(n.More, 0)
		if more := len(n.PIDs) - MaxNotePIDs; more > 0 {
			n.PIDs, n.More = n.PIDs[:MaxNotePIDs], min(n.More, math.MaxInt-more)+more
		}
	}
	return list
}

// shorten cuts a list, and counts what is left out.
func shorten[T any](m *Metadata, list []T, most int) []T {
	if more := len(list) - most; more > 0 {
		m.LeftOut = min(max(m.LeftOut, 0), math.MaxInt-more) + more
		return list[:most]
	}
	return list
}

func (a *Account) tidy() {
	for _, counts := range []*map[string]uint64{&a.Samples.Dropped, &a.Samples.Discarded, &a.Samples.Truncated} {
		*counts = printableKeys(*counts)
	}
	if a.Events != nil {
		c := &a.Events.Counts
		c.Dropped, c.Discarded, c.Cost = printableKeys(c.Dropped), printableKeys(c.Discarded), max(c.Cost, 0)
	}
}

// printableKeys returns counts under printable causes, without zeros. It does not change its
// argument.
func printableKeys(counts map[string]uint64) (clean map[string]uint64) {
	for cause, n := range counts {
		if n == 0 {
			continue
		}
		if clean == nil {
			clean = make(map[string]uint64, len(counts))
		}
		clean[Printable(cause)] += n
	}
	return clean
}

// finite is a number that JSON has: 0 for others.
func finite(v float64) float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	return v
}
