package sink

import (
	"bufio"
	"fmt"
	"io"

	pprof "github.com/google/pprof/profile"
)

// CompareOptions says how two profiles are compared. The zero value compares all methods, by what both profiles have.
type CompareOptions struct {
	By          By
	SampleType  string // "" for one that both profiles have: calls, if possible
	Engine      string // of calls: "" for the only one
	IgnoreSites bool   // two methods are one edge, wherever one calls the other
	N           int    // differences to show; 0 for all
	Width       int    // columns that lines should keep to; 0 to keep names whole
}

// Named is a stored profile with what people call it.
type Named struct {
	Name    string
	Profile *pprof.Profile
}

// Compare writes how much two profiles have in common: their overlap, their correlation (see cct.Overlap and
// cct.Correlation), and what differs most. Nil options are the zero value. It fails if they do not count the same thing.
func Compare(w io.Writer, a, b Named, opts *CompareOptions) error {
	if opts == nil {
		opts = new(CompareOptions)
	}
	sampleType, err := commonType(a, b, opts.SampleType)
	if err != nil {
		return err
	}
	c := &comparison{names: [2]string{printable(a.Name), printable(b.Name)}, opts: opts, out: bufio.NewWriter(w)}
	for i, side := range []Named{a, b} {
		if c.sides[i], err = c.side(side, sampleType); err != nil {
			return err
		}
	}
	switch opts.By {
	case ByEdge:
		c.byEdge()
	case ByContext:
		c.byContext()
	case ByClass:
		c.byClass()
	default:
		c.byMethod()
	}
	if c.waited {
		fmt.Fprintf(c.out, "left out: waits for work\n")
	}
	return flush(c.out, "comparison")
}

type comparison struct {
	names  [2]string
	sides  [2]*stacks
	waited bool // there are waits for work, which are left out
	opts   *CompareOptions
	out    *bufio.Writer
}

// side reads the stacks of one profile that are to be compared.
func (c *comparison) side(n Named, sampleType string) (*stacks, error) {
	s, err := newStacks(n.Profile, sampleType)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", n.Name, err)
	}
	c.waited = s.leaveWaits() > 0 || c.waited
	if s.ofCalls() {
		if c.opts.Engine != "" {
			s.keep = func(sample *pprof.Sample) bool { return label(sample, labelEngine) == c.opts.Engine }
		} else if err := oneEngine(n); err != nil {
			return nil, err
		}
	}
	empty, classes := true, false
	for sample := range s.all() {
		empty = false
		classes = classes || label(sample, labelClass) != ""
		if c.opts.By == ByContext && s.ofCalls() && !hasContext(sample) {
			return nil, fmt.Errorf("%s has calls without their contexts: compare by edge, or record with --exact", n.Name)
		}
	}
	if empty {
		what := s.unit()
		if c.opts.Engine != "" {
			what += " of engine " + printable(c.opts.Engine)
		}
		return nil, fmt.Errorf("%s has no %s: there is nothing to compare", n.Name, what)
	}
	if c.opts.By == ByClass && !classes {
		return nil, fmt.Errorf("%s does not tell classes of objects: compare by method, or record with -e alloc or -e lock", n.Name)
	}
	return s, nil
}
