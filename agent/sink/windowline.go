package sink

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
)

// A windowLine is the comment on one of several consecutive windows in a profile:
//
//	window 2: from 2026-11-22T10:15:30.123Z for 10.002s, samples: 990, 0 lost, 3 truncated (frame pointer 3)
type windowLine struct {
	number   int64
	start    time.Time
	duration time.Duration
	summary  string // accounts for its samples or events
}

func (l windowLine) String() string {
	return fmt.Sprintf("window %d: from %s for %v, %s", l.number,
		l.start.UTC().Format("2006-01-02T15:04:05.000Z07:00"), l.duration.Round(time.Millisecond), l.summary)
}

var windowPattern = regexp.MustCompile(`^window ([0-9]{1,19}): from ([0-9TZ:.+-]{20,40}) for ([0-9a-zµ.]{1,40}), ((?:samples|events): .*)$`)

// parseWindowLine reads what String wrote; ok is false for any other comment.
func parseWindowLine(comment string) (l windowLine, ok bool) {
	if !strings.HasPrefix(comment, "window ") { // cheaper
		return l, false
	}
	m := windowPattern.FindStringSubmatch(comment)
	if m == nil {
		return l, false
	}
	var errs [3]error
	l.number, errs[0] = strconv.ParseInt(m[1], 10, 64)
	l.start, errs[1] = time.Parse(time.RFC3339, m[2])
	l.duration, errs[2] = time.ParseDuration(m[3])
	l.summary = m[4]
	return l, errs == [3]error{} && l.number > 0
}

// windowLines returns what the comments of a profile say of its windows, by number. Of two with one number the first
// counts.
func windowLines(p *pprof.Profile) map[int64]windowLine {
	lines := make(map[int64]windowLine)
	for _, comment := range p.Comments {
		if l, ok := parseWindowLine(comment); ok {
			if _, known := lines[l.number]; !known {
				lines[l.number] = l
			}
		}
	}
	return lines
}

// describeWindows says in one line which windows a profile is of, if it does say.
func describeWindows(lines map[int64]windowLine) []string {
	if len(lines) == 0 {
		return nil
	}
	first := lines[slices.Min(slices.Collect(maps.Keys(lines)))]
	from := fmt.Sprintf("from %s for %v", first.start.UTC().Format(time.RFC3339), first.duration)
	if len(lines) == 1 {
		return []string{fmt.Sprintf("window %d: %s", first.number, from)}
	}
	return []string{fmt.Sprintf("windows: %d, the first %s; vmprof-agent compare FILE tells how alike they are", len(lines), from)}
}
