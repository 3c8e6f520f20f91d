package sink

import (
	"bufio"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// coverages say of each process what its events add up to, over all windows: the main value with its 95 % interval, and which
// part of the time and of the events it was observed in, if that is not all:
//
//	java (pid 4711): 12300000000 ± 140000000 bytes
//	java (pid 4711): observed 20% of the time, 4s of 20s, in 4 slices; values are scaled to all of it: 12300000000 ± 4200000000 bytes
//	java (pid 4711): nothing was observed in its first 400ms: 12300000000 ± 140000000 bytes
//	java (pid 4711): up to 3.1% of the events were lost; values are scaled to all of them: 12300000000 ± 420000000 bytes
//	java (pid 4711): observed 10% of the time, 1s of 10s, in 1 slice; values are scaled to all of it: 12300000000 bytes, and how far off that may be is unknown
//
// The interval includes which events were drawn, in which slices, and those that were lost. It is unknown if there are too few.
type coverages struct {
	kind  profile.EventKind
	order []*covered
	of    map[int]*covered // by pid
}

type covered struct {
	comm string
	pid  int
	sum  float64 // of the main value
	profile.Coverage
}

func (c *coverages) add(proc *profile.Process, e *profile.Events) {
	if e.Coverage == nil {
		return
	}
	if c.of == nil {
		c.of = make(map[int]*covered)
	}
	all := c.of[proc.PID]
	if all == nil {
		all = &covered{comm: proc.Comm, pid: proc.PID}
		c.of[proc.PID], c.order = all, append(c.order, all)
	}
	all.Add(e.Coverage)
	for i := range e.Rows {
		if row := &e.Rows[i]; !e.Kind.Apart(&row.EventLabels) {
			all.sum += row.Values[e.Kind.Main()]
		}
	}
}

// lines are the comments, one for each process.
func (c *coverages) lines() (list []string) {
	for _, p := range c.order {
		if p.sum == 0 && !p.Partial() {
			continue // there is nothing but rows that stand apart
		}
		line := fmt.Sprintf("%s (pid %d): ", printable(p.comm), p.pid)
		if p.Missed >= leastMissed {
			line += fmt.Sprintf(missedFormat, p.Missed.Round(time.Second/10))
		}
		if p.Partial() {
			line += fmt.Sprintf("observed %s of the time, %v of %v, in %s; "+scaledToAll+" of it: ",
				percent(p.Share(), 1), p.Observed.Round(time.Second/10), p.Time.Round(time.Second/10), plural(p.Slices, "slice"))
		}
		if p.Lost > leastLost {
			line += fmt.Sprintf("up to %s of the events were lost; "+scaledToAll+" of them: ", percent(p.Lost, 1))
		}
		unit := mainValue(c.kind).Unit
		if half := p.Within(); math.IsInf(half, 1) {
			line += fmt.Sprintf("%.0f %s, and %s", p.sum, unit, unknownInterval)
		} else {
			line += fmt.Sprintf("%.0f ± %.0f %s", p.sum, math.Ceil(half), unit)
		}
		list = append(list, line)
	}
	return list
}

// scaledToAll is in the lines of processes of which a part is not recorded, and made up for.
const scaledToAll = "values are scaled to all"

// missedFormat is how a comment says that a process's beginning is missing, missedPattern how it is read.
const missedFormat = "nothing was observed in its first %v: "

var missedPattern = regexp.MustCompile(`^nothing was observed in its first ([0-9a-z.]{1,20}): `)

// leastMissed is so long that it is worth a word.
const leastMissed = time.Second / 10

// leastLost is the share of lost events that is worth a word.
const leastLost = 0.001

// unknownInterval is said of a sum of which too few slices of time were observed.
const unknownInterval = "how far off that may be is unknown"

// coveragePattern also matches how earlier builds said that an interval is unknown: as a number of it.
var coveragePattern = regexp.MustCompile(`^.* \(pid [0-9]+\): (.*: )?(-?[0-9]{1,30})(?: ± ([0-9]{1,30}|unknown) [a-z]+| [a-z]+, and ` + unknownInterval + `)$`)

// A statedSum is what the comments of a profile say of the main value of events, all processes together.
type statedSum struct {
	sum, within float64       // within is half of the 95 % interval; +Inf if it is not known of each process
	parts       []string      // one line for each process that was not observed all the time, or not in all events
	missed      time.Duration // before a process was observed, the longest
}

// statedSumOf reads the comments; ok is false if they say nothing of sums.
func statedSumOf(p *pprof.Profile) (s statedSum, ok bool) {
	together := 0.0 // processes share slices and losses: they may all have been busy in them
	for _, comment := range p.Comments {
		m := coveragePattern.FindStringSubmatch(comment)
		if m == nil {
			continue
		}
		ok = true
		sum, _ := strconv.ParseFloat(m[2], 64)
		s.sum += sum
		half, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			half = math.Inf(1)
		}
		if m[1] == "" {
			s.within = math.Hypot(s.within, half) // each has events of its own
			continue
		}
		s.parts = append(s.parts, comment)
		if m := missedPattern.FindStringSubmatch(m[1]); m != nil {
			if missed, err := time.ParseDuration(m[1]); err == nil {
				s.missed = max(s.missed, missed)
			}
		}
		together += half
	}
	s.within = math.Hypot(s.within, together)
	return s, ok
}

// widen multiplies the variance of every sample by one factor, so that the interval of the sum of all samples is at least as wide
// as the interval that the profile states. The stated interval also covers the choice of slices and lost events. Survey sampling
// calls the factor the design effect.
func (e *storedEvents) widen() {
	stated, ok := statedSumOf(e.stacks.profile)
	if !ok {
		return
	}
	chance := 0.0
	for sample, t := range e.all() {
		if e.kind != profile.Locks || contended(sample) {
			chance += t.variance
		}
	}
	if chance > 0 {
		e.effect = max(1, stated.within/normal95*stated.within/normal95/chance)
	}
	e.stated = &stated
}

// partly says that a part of the time was not observed, or that events were lost. The design effect is that of all samples
// together: a class that is allocated in bursts of its own, in few slices or in none, is much further off than that.
func (e *storedEvents) partly() bool {
	return e.stated != nil && slices.ContainsFunc(e.stated.parts, func(line string) bool { return strings.Contains(line, scaledToAll) })
}

// interval is half of the 95 % interval of the main value of all samples that count: the stated one, or what follows from the
// number of events if the profile states none or has been changed since.
func (e *storedEvents) interval(all tally) float64 {
	const rounded = 1e-3
	value := all.values[e.kind.Main()]
	if e.stated == nil || math.Abs(e.stated.sum-value) > rounded*value {
		return normal95 * math.Sqrt(all.variance)
	}
	return e.stated.within
}

// An EventTotal is what the events of a stored profile add up to: the main value of their kind, without what stands apart.
type EventTotal struct {
	Sum    float64
	Within float64 // half of the 95 % interval; 0 if it is exact, +Inf if there are too few events to tell
	// Missed is how long a process ran before it was observed, if that is in its recording; the longest of several.
	Missed time.Duration
}

// TotalOf returns what a stored profile says of the sum of its events. It fails if the profile has none of that kind.
func TotalOf(p *pprof.Profile, kind profile.EventKind) (EventTotal, error) {
	e, err := readEvents(p, kind)
	if err != nil {
		return EventTotal{}, err
	}
	var all tally
	for sample, t := range e.all() {
		if kind != profile.Locks || contended(sample) {
			all.add(t)
		}
	}
	total := EventTotal{Sum: all.values[kind.Main()], Within: e.interval(all)}
	if e.stated != nil {
		total.Missed = e.stated.missed
	}
	return total, nil
}

// about writes the interval of all samples in percent, if it is known.
func (e *storedEvents) about(all tally) string {
	half, value := e.interval(all), all.values[e.kind.Main()]
	if half == 0 {
		return "exact"
	}
	if math.IsInf(half, 1) {
		return unknownInterval
	}
	return halfWidth(100*half/value, "%")
}

// writeObserved writes what was not observed all the time, or in all events.
func (e *storedEvents) writeObserved(out *bufio.Writer, opts *ViewOptions) {
	if e.stated == nil {
		return
	}
	for _, line := range e.stated.parts {
		writeFolded(out, line, opts.Width)
	}
}
