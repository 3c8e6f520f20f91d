package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A Gap is a part of a history that cannot be read: an unknown number of windows between two times.
type Gap struct {
	From, To time.Time // zero if there is no readable window before, or after it
	Why      string    // such as "damaged"
}

// Reasons of gaps.
const (
	whyDamaged    = "damaged" // bytes are not those that were written
	whyUnreadable = "unreadable"
)

const gapLayout = "2006-01-02 15:04:05 MST"

// String says why something is missing and when: "damaged from 2026-11-25 03:10:00 UTC to
// 2026-11-25 03:10:10 UTC".
func (g Gap) String() string {
	switch {
	case g.From.IsZero() && g.To.IsZero():
		return g.Why + ", of an unknown time"
	case g.From.IsZero():
		return g.Why + " until " + g.To.Format(gapLayout)
	case g.To.IsZero():
		return g.Why + " from " + g.From.Format(gapLayout) + " on"
	}
	return fmt.Sprintf("%s from %s to %s", g.Why, g.From.Format(gapLayout), g.To.Format(gapLayout))
}

// touches reports whether the gap may have windows between two times.
func (g *Gap) touches(from, to time.Time) bool {
	return (g.From.IsZero() || g.From.Before(to)) && (g.To.IsZero() || g.To.After(from))
}

// gaps are those of a history whose index is files, ordered as they were written. Bodies are not
// read.
func gaps(files []*openIndex) (list []Gap) {
	var (
		last time.Time // the end of the last readable window
		open int       // the first gap with no window after it
	)
	miss := func(why string) {
		if n := len(list); n == open || list[n-1].Why != why {
			list = append(list, Gap{From: last, Why: why})
		}
	}
	for _, f := range files {
		for i := range f.entries {
			e := &f.entries[i]
			if e.damaged {
				miss(whyDamaged)
				continue
			}
			for ; open < len(list); open++ {
				g := &list[open]
				if g.To = e.start; g.To.Before(g.From) { // the clock was set back meanwhile
					g.From, g.To = g.To, g.From
				}
			}
			last = e.end
		}
		if f.gap != "" {
			miss(f.gap)
		}
	}
	return list
}

// maxGaps is how many gaps are written out.
const maxGaps = 5

// missing says in one sentence what is missing.
func missing(list []Gap) string {
	var parts []string
	for i, g := range list {
		if i == maxGaps {
			parts = append(parts, stored.Plural(len(list)-i, "more gap"))
			break
		}
		if text := g.String(); !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return profile.MissingPart + strings.Join(parts, "; ")
}
