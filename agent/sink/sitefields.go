package sink

import (
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// siteFields says which fields of its call sites a profile knows. Sites of two profiles are compared by the fields that
// both know: a profiler that has no offsets would otherwise not have an edge in common with one that does.
type siteFields struct{ line, offset bool }

// knownFields returns what the samples of a profile know.
func knownFields(s *stacks) (known siteFields) {
	for sample := range s.all() {
		site := s.edge(sample).Site
		known.line = known.line || site.Line > 0
		known.offset = known.offset || site.Offset >= 0
	}
	return known
}

func (f siteFields) and(g siteFields) siteFields {
	return siteFields{f.line && g.line, f.offset && g.offset}
}

// of returns what is left of a site.
func (f siteFields) of(s profile.Site) profile.Site {
	if !f.line {
		s.Line = noSite.Line
	}
	if !f.offset {
		s.Offset = noSite.Offset
	}
	return s
}

// note tells that common is less than what one of two profiles knows, or "".
func (common siteFields) note(a, b siteFields) string {
	lacks := func(hasA bool) string {
		if hasA {
			return "B"
		}
		return "A"
	}
	switch { // the least that is common first
	case a == b:
		return ""
	case common == siteFields{}:
		return "call sites are ignored: the two profiles do not know the same of them"
	case !common.offset && a.offset != b.offset:
		return "call sites are told apart by line only: " + lacks(a.offset) + " has no offsets"
	}
	return "call sites are told apart by offset only: " + lacks(a.line) + " has no lines"
}
