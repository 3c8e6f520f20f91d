package sink

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// ProcessContexts tell how the contexts of one process were found, in one window if there are several. Profiles hold them as
// comments:
//
//	contexts of java (pid 4711) in window 2: chain, walked=50, linked=940, ambiguous=30, fitted=2, unplaced=1, nodes=346,
//	  shared=10, methods=122, by-depth=985/980/970, by-site=988/985/980, check=500/480/470/400
//
// (on one line). What follows the process is the mode and the fields of profile.Contexts; nodes, shared, methods,
// by-depth and by-site are there in mode chain only, check if contexts were checked: samples, then those that were
// right. Whatever the command name is, the line can be read: the last parenthesis that may close the pid does.
type ProcessContexts struct {
	Comm   string // printable once it was read
	PID    int64
	Window int64 // 0 if the profile is of one window
	profile.Contexts
}

// String is one line, whatever the names are.
func (l *ProcessContexts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contexts of %s", l.process())
	if l.Window > 0 {
		fmt.Fprintf(&b, " in window %d", l.Window)
	}
	fmt.Fprintf(&b, ": %v", l.Mode)
	for _, f := range l.fields() {
		fmt.Fprintf(&b, ", %s=", f.name)
		for i, v := range f.values() {
			if i > 0 {
				b.WriteByte('/')
			}
			fmt.Fprint(&b, v)
		}
	}
	return b.String()
}

// process is what people call the process.
func (l *ProcessContexts) process() string {
	comm := printable(l.Comm)
	if comm == "" {
		comm = unnamed
	}
	return fmt.Sprintf("%s (pid %d)", comm, l.PID)
}

// A contextField is one field of a ProcessContexts: either counts or sizes.
type contextField struct {
	name   string
	counts []*uint64
	size   *int
}

func (f contextField) values() (values []uint64) {
	if f.size != nil {
		return []uint64{uint64(max(*f.size, 0))}
	}
	for _, c := range f.counts {
		values = append(values, *c)
	}
	return values
}

// set takes values that were read; it fails if they are too many, too few or too large.
func (f contextField) set(values []uint64) bool {
	if f.size != nil {
		if len(values) != 1 || values[0] > math.MaxInt {
			return false
		}
		*f.size = int(values[0])
		return true
	}
	if len(values) != len(f.counts) {
		return false
	}
	for i, c := range f.counts {
		*c = values[i]
	}
	return true
}

// fields are those that a line of this mode has.
func (l *ProcessContexts) fields() []contextField {
	c := &l.Contexts
	one := func(name string, count *uint64) contextField {
		return contextField{name: name, counts: []*uint64{count}}
	}
	levels := func(name string, counts *[3]uint64) contextField {
		return contextField{name: name, counts: []*uint64{&counts[0], &counts[1], &counts[2]}}
	}
	fields := []contextField{
		one("walked", &c.Walked), one("linked", &c.Linked),
		one("ambiguous", &c.Ambiguous), one("fitted", &c.Fitted), one("unplaced", &c.Unplaced),
	}
	if c.Mode == profile.ContextChain {
		fields = append(fields,
			contextField{name: "nodes", size: &c.Nodes}, contextField{name: "shared", size: &c.Shared},
			contextField{name: "methods", size: &c.Methods},
			levels("by-depth", &c.ByDepth), levels("by-site", &c.BySite))
	}
	if c.Check != nil {
		right := &c.Check.Right
		fields = append(fields, contextField{name: "check", counts: []*uint64{&c.Check.Samples, &right[0], &right[1], &right[2]}})
	}
	return fields
}

// The fields hold no parenthesis, so of a command name that imitates a line only the last pid counts.
var contextPattern = regexp.MustCompile(`^contexts of (.*) \(pid ([0-9]{1,10})\)(?: in window ([0-9]{1,19}))?: ([a-z]+)((?:, [a-z-]+=[0-9/]+)+)$`)

// parseContextLine reads what String wrote; ok is false for any other comment. Fields that it does not know are left
// out, those that are missing are 0.
func parseContextLine(comment string) (l ProcessContexts, ok bool) {
	if !strings.HasPrefix(comment, "contexts of ") { // cheaper
		return l, false
	}
	m := contextPattern.FindStringSubmatch(comment)
	if m == nil {
		return l, false
	}
	l.Comm = m[1]
	var err error
	if l.PID, err = strconv.ParseInt(m[2], 10, 64); err != nil {
		return l, false
	}
	if m[3] != "" {
		if l.Window, err = strconv.ParseInt(m[3], 10, 64); err != nil || l.Window == 0 {
			return l, false
		}
	}
	if l.Mode, err = profile.ParseContextMode(m[4]); err != nil {
		return l, false
	}
	list := strings.Split(m[5], ", ")[1:]
	for _, text := range list {
		if strings.HasPrefix(text, "check=") {
			l.Check = new(profile.ContextCheck)
		}
	}
	fields := make(map[string]contextField)
	for _, f := range l.fields() {
		fields[f.name] = f
	}
	for _, text := range list {
		name, numbers, _ := strings.Cut(text, "=")
		f, known := fields[name]
		if !known {
			continue
		}
		var values []uint64
		for number := range strings.SplitSeq(numbers, "/") {
			v, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				return l, false
			}
			values = append(values, v)
		}
		if !f.set(values) {
			return l, false
		}
	}
	return l, true
}

// maxContextLines bounds the processes and windows whose contexts a profile tells of.
const maxContextLines = 1 << 18

// ToldContexts returns what the comments of a profile say of contexts, in their order. It fails if they are too many.
func ToldContexts(p *pprof.Profile) ([]ProcessContexts, error) {
	var lines []ProcessContexts
	for _, comment := range p.Comments {
		if l, ok := parseContextLine(comment); ok {
			if len(lines) == maxContextLines {
				return nil, fmt.Errorf("the profile tells of the contexts of more than %d processes and windows", maxContextLines)
			}
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// tellsContexts says that a profile tells how contexts were found.
func tellsContexts(p *pprof.Profile) bool {
	return slices.ContainsFunc(p.Comments, func(comment string) bool {
		_, ok := parseContextLine(comment)
		return ok
	})
}

// sumContexts adds up the lines of each process, in the order in which processes appear. Counts are sums over all
// windows. What was learned (nodes, shared, methods) is that of the last window, as it goes on growing.
func sumContexts(lines []ProcessContexts) []*ProcessContexts {
	type process struct {
		comm string
		pid  int64
		mode profile.ContextMode
	}
	var order []*ProcessContexts
	index := make(map[process]*ProcessContexts)
	for _, l := range lines {
		id := process{l.Comm, l.PID, l.Mode}
		sum := index[id]
		if sum == nil {
			sum = &ProcessContexts{Comm: l.Comm, PID: l.PID, Window: l.Window, Contexts: profile.Contexts{Mode: l.Mode}}
			index[id] = sum
			order = append(order, sum)
		}
		sum.add(&l)
	}
	return order
}

// add adds the counts of l, which may be of a later window.
func (sum *ProcessContexts) add(l *ProcessContexts) {
	if l.Check != nil && sum.Check == nil {
		sum.Check = new(profile.ContextCheck)
	}
	if l.Window != sum.Window {
		sum.Window, sum.Nodes, sum.Shared, sum.Methods = l.Window, 0, 0, 0
	}
	// Two lines of one window are two programs of one name, the second executed by the first: two trees.
	sum.Nodes += l.Nodes
	sum.Shared += l.Shared
	sum.Methods += l.Methods
	sum.Walked += l.Walked
	sum.Linked += l.Linked
	sum.Ambiguous += l.Ambiguous
	sum.Fitted += l.Fitted
	sum.Unplaced += l.Unplaced
	for i := range sum.ByDepth {
		sum.ByDepth[i] += l.ByDepth[i]
		sum.BySite[i] += l.BySite[i]
	}
	if l.Check != nil {
		sum.Check.Samples += l.Check.Samples
		for i := range sum.Check.Right {
			sum.Check.Right[i] += l.Check.Right[i]
		}
	}
}
