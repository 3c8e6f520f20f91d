package fold

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Lengths says where the length of a wait for a lock is from.
type Lengths uint8

// Of waits that are too many for their probes to be attached all the time, there are two estimates
// of how long they are. What slices saw is precise if most waits fit into one, and lacks the
// others. What looks saw lacks none, and is precise if many threads wait. CoveredParts.bySlices
// chooses when a window closes.
const (
	LengthsKnown  Lengths = iota // the wait was seen from its begin until its end, or until now
	LengthsLater                 // only its begin was seen: the length is counted as one of the following
	LengthsSliced                // the wait ended in the slice in which it had begun, and its length was counted then
	LengthsLooked                // what a Look stands for: Every is Moment
)

// ofRow is what distinguishes rows.
func (l Lengths) ofRow() Lengths {
	if l == LengthsLater {
		return LengthsKnown
	}
	return l
}

// monitorWait is EventLabels.What of waits for monitors.
const monitorWait = "block"

// normal95 is the two-sided 95 % quantile of the normal distribution.
const normal95 = 1.96

// A Look is what was seen at a moment that was drawn: how many threads waited. It stands for a time
// around the moment: its events are of Moment.
type Look struct {
	Monitor      bool          // they waited for monitors; otherwise for other locks
	Since, Until time.Duration // CLOCK_MONOTONIC: the time for which it stands
	Waiting      float64       // threads, estimated from those that were drawn
	Weight       float64       // how many threads one that was drawn stands for; at least 1
	Again        bool          // an earlier one stands for this time, too
}

// lookSums are sums of the looks of one process at waits of one kind.
type lookSums struct {
	n       int     // looks
	waiting float64 // sum
	last    float64
	differ  float64 // sum of the squares of the differences of each from the one before
	weight  float64 // the largest
	squares float64 // sum of the squares of the times, ns²
	seen    float64 // ns for which they stand

	begun, ended float64 // waits that began in slices, and those of them whose end was seen
	lengths      map[*Coverage]*mainSums

	lookedTimes, slicedTimes lockTimes
}

// looked returns the sums of waits for monitors, or of others.
func (r *Events) looked(monitor bool) *lookSums {
	if r.looks == nil {
		r.looks = map[bool]*lookSums{}
	}
	if r.looks[monitor] == nil {
		r.looks[monitor] = &lookSums{lengths: map[*Coverage]*mainSums{}}
	}
	return r.looks[monitor]
}

// observe adds a wait, and returns the main sums of which its value is a part: all, unless only a
// choice decides.
func (s *lookSums) observe(e *Event, all map[*Coverage]*mainSums) map[*Coverage]*mainSums {
	switch e.Length {
	case LengthsLater:
		s.begun += float64(e.Every)
	case LengthsSliced:
		s.ended += float64(e.Every)
		return s.lengths
	case LengthsLooked:
		if !e.Kind.Apart(&e.Labels) {
			s.seen += e.Sums.Values[e.Kind.Main()]
		}
	}
	return all
}

const (
	// mostlyEnded is the least part of the waits that begin in slices and end there, of which
	// slices know the lengths.
	mostlyEnded = 0.8
	// leastChoice is how many slices there are at least that know: of fewer, the interval may be
	// narrow by chance.
	leastChoice = 4
)

// bySlices reports whether the lengths of waits are taken from slices, and not from looks: most
// waits fit into a slice, slices know the sum better, and looks do not contradict, as they do if
// some threads wait for long.
func (parts *CoveredParts) bySlices(s *lookSums) bool {
	if s.n == 0 || s.begun == 0 || s.ended < mostlyEnded*s.begun {
		return s.n == 0
	}
	for c := range s.lengths {
		if part := parts.of[c]; part.partial() && part.slices < leastChoice {
			return false
		}
	}
	sum, off, variance := parts.sliced(s)
	sliced, looked := math.Hypot(off, normal95*math.Sqrt(variance)), s.within()
	return sliced < looked && math.Abs(s.seen-sum) <= math.Hypot(sliced, looked)
}

// sliced returns what slices say of the sum of lengths, in ns: half of its 95 % interval due to the
// choice of slices, and the variance due to recording one in N.
func (parts *CoveredParts) sliced(s *lookSums) (sum, off, variance float64) {
	for c, of := range s.lengths {
		factor := parts.factor(profile.Locks, c)
		sum += factor * of.sum
		variance += factor * factor * of.variance
		if part, ok := parts.of[c]; ok {
			off = math.Hypot(off, part.within(of.rates))
		}
	}
	return sum, off, variance
}

// leftOut returns a function that reports whether a row is of the lengths that were not chosen.
func (r *Events) leftOut(covered *CoveredParts) func(*EventKey) bool {
	not := map[bool]Lengths{}
	for monitor, l := range r.looks {
		not[monitor] = LengthsSliced
		if covered.bySlices(l) {
			not[monitor] = LengthsLooked
		}
	}
	return func(key *EventKey) bool {
		return key.lengths != LengthsKnown && key.lengths == not[key.What == monitorWait]
	}
}

// AddLook adds a look at a process to every window that wants it.
func (s *State) AddLook(p *Process, l *Look) {
	for w := range s.windows {
		w.AddLook(p, l)
	}
}

// AddLook adds the part of the time of a look that is in the window, if it wants the process.
func (w *Window) AddLook(p *Process, l *Look) {
	length := l.Until - max(l.Since, w.Began)
	if !w.Wants(p.PID) || length <= 0 {
		return
	}
	w.EventSet(p).ByKind(profile.Locks).looked(l.Monitor).add(l, length)
}

func (s *lookSums) add(l *Look, length time.Duration) {
	s.squares += float64(length) * float64(length)
	if l.Again && s.n > 0 {
		return
	}
	if s.n > 0 {
		s.differ += (l.Waiting - s.last) * (l.Waiting - s.last)
	}
	s.n++
	s.last, s.waiting, s.weight = l.Waiting, s.waiting+l.Waiting, max(s.weight, l.Weight)
}

// within is half of the 95 % interval of the time that the looks stand for, in ns. How much a look
// varies is estimated from differences of consecutive ones, as coveredPart.within does for slices;
// it is at least what drawing the threads makes of it. Looks that saw nothing leave room for what
// one thread in all of them would be. A single look says nothing of how threads come and go: half
// of it may.
func (s *lookSums) within() float64 {
	if s.n == 0 {
		return 0
	}
	mean := s.waiting / float64(s.n)
	variance := mean * mean / 4
	if s.n > 1 {
		few := profile.StudentT(s.n-1) / normal95
		variance = few * few * s.differ / float64(2*(s.n-1))
	}
	variance = max(variance, s.weight*max(mean, s.weight/float64(s.n)))
	return normal95 * math.Sqrt(variance*s.squares)
}

// maxFollowed bounds the ended processes that a Coverage remembers, about 50 bytes each.
const maxFollowed = 1024

// A followedTime is when the probes of a plan could observe a process, CLOCK_MONOTONIC.
type followedTime struct{ from, to time.Duration } // to is math.MaxInt64 until the process ends

// Follow records that the probes of the plan can observe a process from now on.
func (c *Coverage) Follow(id proc.Identity, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.followed[id]; known {
		return
	}
	if len(c.followed) >= maxFollowed {
		for id, t := range c.followed {
			if t.to != math.MaxInt64 {
				delete(c.followed, id)
			}
		}
	}
	if c.followed == nil {
		c.followed = map[proc.Identity]followedTime{}
	}
	c.followed[id] = followedTime{now, math.MaxInt64}
}

// Continue records that the probes of the plan observe a process instead of those of another plan.
func (c *Coverage) Continue(other *Coverage, id proc.Identity) {
	t, known := other.followedIn(id)
	before := other.BornAt()
	if known {
		c.Follow(id, t.from)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// Leave records that a process has ended.
func (c *Coverage) Leave(id proc.Identity, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, known := c.followed[id]; known && t.to == math.MaxInt64 {
		c.followed[id] = followedTime{t.from, now}
	}
}

// followedIn returns when the plan could observe a process; ok is false if it could not, or if that
// is forgotten.
func (c *Coverage) followedIn(id proc.Identity) (t followedTime, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok = c.followed[id]
	return t, ok || c.Everybody
}

// Extents returns how much of a process's time in the window the probes of each kind were attached
// and recorded, for kinds whose events nobody else counts: those that are not in known. With
// several plans of a kind the least observed one counts.
func (parts *CoveredParts) Extents(p *guest.Process, known []profile.Extent) (list []profile.Extent) {
	least := map[profile.EventKind]profile.Extent{}
	for c, part := range parts.of {
		if slices.ContainsFunc(known, func(e profile.Extent) bool { return e.Subject == c.Kind.String() }) {
			continue
		}
		t, ok := c.followedIn(p.Identity())
		if !ok {
			continue
		}
		if c.Everybody {
			t = followedTime{p.Noticed, math.MaxInt64}
		}
		e, there := parts.extent(c, &part, t, p.Noticed)
		if other, ok := least[c.Kind]; there && (!ok || e.Share() < other.Share()) {
			least[c.Kind] = e
		}
	}
	for kind := range profile.EventKinds {
		if e, ok := least[kind]; ok {
			list = append(list, e)
		}
	}
	return list
}

// NotAttached is the reason of an Extent that estimates what there was before probes observed a
// process.
const NotAttached = "the agent was not attached yet (estimated from the rate since then)"

// LateShare returns for how long probes of the kind did not observe p at the beginning of the
// window, as a multiple of the rest of the window. It returns 0 if that time is too short to count,
// or is all of the window.
func (parts *CoveredParts) LateShare(kind profile.EventKind, p *guest.Process) float64 {
	var late, there time.Duration
	for c := range parts.of {
		if t, ok := c.followedIn(p.Identity()); ok && c.Kind == kind && !c.Everybody {
			from := max(parts.began, p.Noticed)
			late = max(late, min(max(t.from, c.BornAt()), parts.ended)-from)
			there = parts.ended - from
		}
	}
	if late < attachTime || late >= there {
		return 0
	}
	return late.Seconds() / (there - late).Seconds()
}

// AddLate adds to extents of the kind what there was before probes observed p, at the rate since
// then: what a VM counts is read from then on.
func (parts *CoveredParts) AddLate(kind profile.EventKind, p *guest.Process, extents []profile.Extent) {
	share := parts.LateShare(kind, p)
	if share == 0 {
		return
	}
	for i := range extents {
		if e := &extents[i]; e.Subject == kind.String() {
			before := e.There * share
			e.There += before
			e.Miss(before, NotAttached)
		}
	}
}

// extent is that of one plan in the time of a process, which was noticed then; ok is false if the
// process was not there in the window.
func (parts *CoveredParts) extent(
	c *Coverage, part *coveredPart, t followedTime, noticed time.Duration,
) (e profile.Extent, ok bool) {
	from, to := max(parts.began, noticed), min(parts.ended, t.to)
	there := to - from
	if there <= 0 {
		return e, false
	}
	// A process that was noticed late was followed for the rest of its time; how that was observed
	// is known of all of the time only.
	followed := max(to-max(from, t.from, c.BornAt()), 0)
	observed := min(followed.Seconds()*part.share(), there.Seconds())
	seen := observed * (1 - parts.lost)
	e = profile.Extent{
		Subject: c.Kind.String(), What: fmt.Sprintf("process time for %s", c.What), Unit: "nanoseconds",
		Source: "the lifetime of the process",
		There:  float64(there), Observed: 1e9 * seen,
	}
	if late := there - followed; late > attachTime {
		e.Miss(float64(late), "the probes were not attached yet")
	}
	if unseen := followed.Seconds() - observed; part.unsure() && part.cuts > 0 {
		e.Miss(0, "they were so many for a moment that their probes were removed to stay within the budget")
	} else if unseen > attachTime.Seconds() {
		e.Miss(1e9*unseen, "they were recorded part of the time to stay within the budget")
	}
	if lost := observed - seen; lost > 0 {
		e.Miss(1e9*lost, "records were lost")
	}
	return e, true
}

// attachTime is what attaching and detaching probes takes.
const attachTime = 40 * time.Millisecond

// An ObservedPart says what an event stands for. The zero one stands for one event.
type ObservedPart struct {
	Cover *Coverage // coverage of its plan; nil if its probe is always attached
	Piece
}

// longestWeight bounds the weight of a wait that took nearly as long as a slice.
const longestWeight = 10

// Apply multiplies the sums of an event, so that they also stand for unobserved events.
func (part *ObservedPart) Apply(e *Event) {
	if part.Cover == nil {
		return
	}
	weight, wait := part.weight, e.Kind == profile.Locks && e.Sums.Events > 0 && e.Delay > 0
	switch {
	case part.slice == 0:
		// Waits that began before the probes were there again are not seen. Of waits of one length,
		// these are the ones that end within that length after the probes came. About as many end
		// within the next such length: each of these counts twice.
		if part.again && wait && part.into < 2*e.Delay {
			weight *= 2
		}
	case wait:
		// A wait is seen if it begins and ends within the slice, which long ones seldom do.
		left := 1 - e.Delay.Seconds()/part.length.Seconds()
		weight *= 1 / max(left, 1.0/longestWeight)
	}
	for i := range e.Sums.Values {
		e.Sums.Values[i] *= weight
	}
	if weight != 1 {
		e.Sums.Known = [profile.MaxEventValues]float64{}
	}
}

// Sliced reports whether the event was seen in a slice of time.
func (part *ObservedPart) Sliced() bool { return part.slice != 0 }

// rate returns what an event adds to the rate of its slice, by one of its values.
func (part *ObservedPart) rate(value float64) float64 {
	if part.cycle <= 0 || math.IsNaN(value) {
		return 0
	}
	return value / part.cycle.Seconds()
}
