package profile

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A PartNote says that events were not observed all the time. Its String is a sentence for people
// that ParsePartNote reads back, so that those of several windows can be made one: they differ in
// their figures.
type PartNote struct {
	What        string // what was observed: "waits for monitors"
	Kind        EventKind
	Least, Most float64 // observed share of the time, 0 to 1, in the windows that had less than all
	Windows     int     // number of these windows
	Why         string  // reason in the window of Least
}

// String is the sentence:
//
//	waits for monitors (lock) were observed 43 % of the time: probe …
//	waits for monitors (lock) were observed 43 to 76 % of the time, in 12 windows: probe …
func (n PartNote) String() string {
	least, most := percent(n.Least), percent(n.Most)
	text := fmt.Sprintf("%s (%v) were observed %s", n.What, n.Kind, least)
	if most != least {
		text += " to " + most
	}
	text += " % of the time"
	if n.Windows > 1 {
		text += fmt.Sprintf(", in %d windows", n.Windows)
	}
	return text + ": " + n.Why
}

// percent is a share in percent, with two digits that count or all of those before the point.
func percent(share float64) string {
	if share >= 0.1 {
		return strconv.FormatFloat(100*share, 'f', 0, 64)
	}
	return strconv.FormatFloat(100*share, 'g', 2, 64)
}

var partNote = regexp.MustCompile(`^([^:]{1,100}?) \(([a-z-]{1,20})\) were observed ([0-9.e+-]{1,10})(?: to ([0-9.e+-]{1,10}))? % of the time(?:, in ([0-9]{1,9}) windows)?: (.*)$`)

// ParsePartNote reads what String wrote; ok is false for any other sentence.
func ParsePartNote(sentence string) (n PartNote, ok bool) {
	if !strings.Contains(sentence, " % of the time") {
		return n, false
	}
	m := partNote.FindStringSubmatch(sentence)
	if m == nil || n.Kind.UnmarshalText([]byte(m[2])) != nil {
		return n, false
	}
	n.What, n.Why = m[1], m[6]
	least, err := strconv.ParseFloat(m[3], 64)
	most, errMost := strconv.ParseFloat(cmp.Or(m[4], m[3]), 64)
	windows, errWindows := strconv.Atoi(cmp.Or(m[5], "1"))
	if err != nil || errMost != nil || errWindows != nil || !(least >= 0 && least <= most && most <= 100) {
		return n, false
	}
	n.Least, n.Most, n.Windows = least/100, most/100, max(windows, 1)
	return n, true
}

// SameSubject reports whether notes are about the same events, so that they can be added.
func (n *PartNote) SameSubject(o *PartNote) bool { return n.What == o.What && n.Kind == o.Kind }

// Add adds the note of other windows.
func (n *PartNote) Add(o *PartNote) {
	if o.Least < n.Least {
		n.Why = o.Why
	}
	n.Least, n.Most = min(n.Least, o.Least), max(n.Most, o.Most)
	n.Windows = min(n.Windows, math.MaxInt32) + min(o.Windows, math.MaxInt32)
}

// AddNotes adds the sentences of another window to those of others, up to most of them: each once,
// and one PartNote for each subject.
func AddNotes(to []string, most int, notes ...string) []string {
	for _, note := range notes {
		if part, ok := ParsePartNote(note); ok {
			at := slices.IndexFunc(to, func(s string) bool {
				other, ok := ParsePartNote(s)
				return ok && other.SameSubject(&part)
			})
			if at >= 0 {
				sum, _ := ParsePartNote(to[at])
				sum.Add(&part)
				to[at] = sum.String()
				continue
			}
		}
		if len(to) < most && !slices.Contains(to, note) {
			to = append(to, note)
		}
	}
	return to
}

// MissingPart begins the comment on a profile from a history of which a part cannot be read.
const MissingPart = "a part of the history is missing: "
