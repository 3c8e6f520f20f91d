package fold

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// keptPieces is how many pieces of time a coverage keeps. They are at least 100 ms long, so events
// in the ring arrive long before their piece is forgotten.
const keptPieces = 64

// A Coverage is the times in which a plan was observed, and the weights of its events. The governor
// writes it; it is read with each event. All times are CLOCK_MONOTONIC.
type Coverage struct {
	Kind profile.EventKind
	What string // the observed subject, for people
	// Everybody says that all processes are observed, without probes in their files.
	Everybody bool
	// Surveyed says that the lengths of waits do not come from the times in which the plan is
	// observed, once it is not observed all the time.
	Surveyed atomic.Bool

	mu       sync.Mutex
	followed map[proc.Identity]followedTime
	born     time.Duration // when it was first observed
	before   time.Duration // since when other probes had observed the same, until born; 0 if none had
	gone     time.Duration // when the plan was removed, 0 if it has not been
	pieces   []Piece       // the last ones, in order
	open     bool          // the last one has not ended
	past     CoverageSums  // sums of the pieces that have ended
	why      error         // why it is not observed all the time; nil if it always was
}

// A Piece is a time in which all events have the same weight.
type Piece struct {
	begin, end time.Duration // end may be in the future
	weight     float64
	planned    float64       // the weight with which the slice began: its cycle divided by its length
	slice      uint64        // its number from 1; 0 if the plan is observed all the time
	length     time.Duration // length of the whole slice, as planned
	cycle      time.Duration // cycle of which the slice was drawn
	again      bool          // the plan is observed all the time, as it was not before
	into       time.Duration // part of a piece that At returned: from its begin to what was seen
}

// CoverageSums are the sums of a Coverage up to some time.
type CoverageSums struct {
	Total    time.Duration // since the plan was first observed
	Observed time.Duration // part of Total in which it was observed
	covered  float64       // seconds for which the slices were planned to stand
	spread   float64       // seconds²; multiplied by the variance of rates between slices, it gives that of the sum
	slices   uint64        // slices that ended
	cuts     uint64        // how often observing all the time ended, because events became too many
	cost     float64       // seconds that probes took in slices, and CPU time that the processes used there
	cpu      float64
	cycle    time.Duration // the last one; 0 if the plan is observed all the time
}

// A Slice is a time in which a plan is observed that is not observed all the time.
type Slice struct {
	To     time.Duration // its end
	Weight float64       // weight of an event in it
	Length time.Duration // as planned
	Cycle  time.Duration // the cycle from which it was drawn
}

// Begin begins a piece: a slice, or all the time from now on if s is nil.
func (c *Coverage) Begin(now time.Duration, s *Slice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pieces) == 0 {
		c.born = now
	}
	p := Piece{begin: now, end: math.MaxInt64, weight: 1, planned: 1, again: len(c.pieces) > 0}
	if s != nil {
		p = Piece{begin: now, end: s.To, weight: s.Weight, planned: s.Weight, slice: c.past.slices + 1,
			length: s.Length, cycle: s.Cycle}
	}
	c.past.cycle = p.cycle
	c.push(p)
}

// push makes p the last piece, which has not ended; mu is held.
func (c *Coverage) push(p Piece) {
	if len(c.pieces) == keptPieces {
		c.pieces = append(c.pieces[:0], c.pieces[1:]...)
	}
	c.pieces, c.open = append(c.pieces, p), true
}

// Reweigh sets the weight of events in the slice from now on.
func (c *Coverage) Reweigh(now time.Duration, weight float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return
	}
	next := c.pieces[len(c.pieces)-1]
	c.cut(now)
	next.begin, next.weight = min(now, next.end), weight
	c.push(next)
}

// End ends the last piece, if it has not ended.
func (c *Coverage) End(now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return
	}
	to := c.pieces[len(c.pieces)-1].end
	c.cut(now)
	switch last := c.pieces[len(c.pieces)-1]; {
	case last.slice != 0:
		// A slice that ends early covers the planned time: its early end depends on what happened
		// in it.
		c.past.covered += last.planned * max(to-now, 0).Seconds()
		// One slice of n has the variance (1 - 1/n) cycle² × that of the rates of slices: the
		// variance of a sum estimated from one of n, drawn independently (Cochran, Sampling
		// Techniques, section 2.5).
		cycle := last.cycle.Seconds()
		c.past.spread += cycle * cycle * (1 - last.length.Seconds()/cycle)
		c.past.slices++
	case c.gone == 0:
		c.past.cuts++
	}
}

// cut ends the last piece; mu is held.
func (c *Coverage) cut(now time.Duration) {
	last := &c.pieces[len(c.pieces)-1]
	last.end = min(last.end, now)
	c.past.add(last, last.end)
	c.open = false
}

// add adds a piece up to the given time.
func (s *CoverageSums) add(p *Piece, until time.Duration) {
	seen := max(min(p.end, until)-p.begin, 0)
	s.Observed += seen
	s.covered += p.planned * seen.Seconds()
}

// Spend records the time that probes took in a slice, and the CPU time that the processes used in
// it.
func (c *Coverage) Spend(cost, cpu time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.cost += cost.Seconds()
	c.past.cpu += cpu.Seconds()
}

// SetPartly records why the plan is not observed all the time.
func (c *Coverage) SetPartly(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.why = why
}

// Retire ends the last piece: the plan is removed.
func (c *Coverage) Retire(now time.Duration) {
	c.mu.Lock()
	c.gone = cmp.Or(c.gone, now)
	c.mu.Unlock()
	c.End(now)
}

// BornAt returns when the plan was first observed, by these probes or by those of the coverage that
// they continue; 0 if never.
func (c *Coverage) BornAt() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.before, c.born)
}

// Reason returns why the plan was not observed all the time, nil if it always was.
func (c *Coverage) Reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// Sums returns the sums until now, or until the plan was removed.
func (c *Coverage) Sums(now time.Duration) CoverageSums {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.past
	if c.gone != 0 {
		now = min(now, c.gone)
	}
	s.Total = max(now-c.born, 0)
	if c.open {
		s.add(&c.pieces[len(c.pieces)-1], now)
	}
	return s
}

// At returns the piece that contains the given time; ok is false if the plan was not observed then.
func (c *Coverage) At(when time.Duration) (p Piece, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.pieces) - 1; i >= 0; i-- {
		if p := &c.pieces[i]; when >= p.begin {
			found := *p
			found.into = when - p.begin
			return found, when < p.end
		}
	}
	return Piece{}, false
}

// A coveredPart is the part of a coverage in a window.
type coveredPart struct {
	CoverageSums
	first  uint64  // the number of the first slice
	factor float64 // factor for sums
	// slowed is by how much probes may have slowed the processes down: their share of the CPU time.
	// Events that occur as fast as they can are fewer by that much. Events that wait for something
	// else are not.
	slowed float64
}

// mostSlowed bounds slowed: budgets allow far less.
const mostSlowed = 0.9

// correction is the range of factors that make up for the events that are fewer: from 1 to
// 1/(1-slowed). middle is its middle, and off how far from that its ends are, as a part of it.
func (p *coveredPart) correction() (middle, off float64) {
	most := 1 / (1 - p.slowed)
	return (1 + most) / 2, (most - 1) / (most + 1)
}

// since returns the part of a coverage after before. An unobserved moment counts only if it is
// longer than attaching takes, or if it began because of the events that it does not show.
func (s CoverageSums) since(before CoverageSums) coveredPart {
	p := coveredPart{first: before.slices + 1, factor: 1}
	p.Total, p.Observed = s.Total-before.Total, s.Observed-before.Observed
	p.covered, p.spread, p.slices = s.covered-before.covered, s.spread-before.spread, s.slices-before.slices
	p.cuts = s.cuts - before.cuts
	if p.cuts == 0 && p.Total-p.Observed <= attachTime {
		p.Observed = p.Total
	}
	p.cycle = max(s.cycle, before.cycle)
	if cpu := s.cpu - before.cpu; cpu > 0 && p.partial() {
		p.slowed = min((s.cost-before.cost)/cpu, mostSlowed)
	}
	// A window seldom begins and ends with a cycle, so slices stand for slightly more or less time
	// than the window's. If cycles are so short that each window has several, sums are scaled to
	// the window's time. Longer cycles leave windows without a slice: then only unscaled sums are
	// right on average.
	if p.partial() && p.covered > 0 && 2*p.cycle <= p.Total {
		p.factor = p.Total.Seconds() / p.covered
	}
	middle, _ := p.correction()
	p.factor *= middle
	return p
}

func (p *coveredPart) partial() bool { return p.Observed < p.Total }

// share is the observed part of the time, 0 to 1.
func (p *coveredPart) share() float64 {
	return (&profile.Coverage{Time: p.Total, Observed: p.Observed}).Share()
}

// unsure reports whether nothing is known of the time that was not observed: too few slices of time
// were drawn in it. Where probes were removed because of a burst, that may be most of the events.
func (p *coveredPart) unsure() bool { return p.partial() && p.slices < 2 }

// within returns half of the 95 % interval of a sum, given the rates in slices, by their numbers.
// It covers the variance from the choice of slices. It is infinite if unknown. The variance of
// rates is estimated from differences of consecutive slices, so that slow changes do not count
// (Cochran, section 8.11).
func (p *coveredPart) within(rates map[uint64]float64) float64 {
	switch {
	case !p.partial():
		return 0
	case p.unsure():
		return math.Inf(1)
	}
	sum := 0.0
	for n := p.first; n+1 < p.first+p.slices; n++ {
		off := rates[n+1] - rates[n]
		sum += off * off
	}
	variance := p.spread * sum / float64(2*(p.slices-1))
	return p.factor * profile.StudentT(int(p.slices-1)) * math.Sqrt(variance)
}

// CoveredParts are the parts of all coverages, and of the recorded events, in a window.
type CoveredParts struct {
	began time.Duration // begin of the window
	ended time.Duration
	of    map[*Coverage]coveredPart
	lost  float64 // the share of the events, of all kinds together, that was lost

	lostEvents uint64

	// Of off-CPU time, records stand for unequal times.
	lostWaits    float64 // the share of the time that was lost
	lostWaitTime time.Duration
}

// Covered returns the parts for a window; before and after are the sums of the coverages at its
// ends. It began and ended at these times of CLOCK_MONOTONIC; counts are of the events in it.
func Covered(
	before, after map[*Coverage]CoverageSums, began, ended time.Duration, counts *profile.EventCounts,
) CoveredParts {
	parts := CoveredParts{began: began, ended: ended, of: make(map[*Coverage]coveredPart, len(after)),
		lost: counts.LostShare(), lostEvents: counts.Lost()}
	parts.lostWaits, parts.lostWaitTime = counts.LostWaitShare(), counts.WaitTimeLost
	for c, sums := range after {
		parts.of[c] = sums.since(before[c])
	}
	return parts
}

// factor returns the factor for the sums of an event.
func (parts *CoveredParts) factor(kind profile.EventKind, c *Coverage) float64 {
	factor := 1 / (1 - parts.lost)
	if kind == profile.OffCPU {
		factor = 1 / (1 - parts.lostWaits)
	}
	if part, ok := parts.of[c]; ok {
		factor *= part.factor
	}
	return factor
}

// cover returns how much of the events of one kind in a process was observed. It takes their sums
// by plan, what looks saw, their total, and the variance from the window's ends. With several
// plans, the least observed one counts, and the uncertainties of all.
func (parts *CoveredParts) cover(
	kind profile.EventKind, sums map[*Coverage]*mainSums, looks map[bool]*lookSums, total, cut float64,
) *profile.Coverage {
	out, chosen, slowed, drawn, events := &profile.Coverage{}, 0.0, 0.0, 0.0, uint64(0)
	for _, l := range looks {
		if !parts.bySlices(l) {
			chosen = math.Hypot(chosen, l.within())
			continue
		}
		_, off, variance := parts.sliced(l)
		chosen = math.Hypot(chosen, off)
		drawn += variance
	}
	for c, s := range sums {
		factor := parts.factor(kind, c)
		drawn += factor * factor * s.variance
		events += s.events
		part, ok := parts.of[c]
		if !ok {
			continue
		}
		chosen = math.Hypot(chosen, part.within(s.rates))
		_, off := part.correction()
		slowed = max(slowed, off)
		this := &profile.Coverage{Time: part.Total, Observed: part.Observed, Slices: int(part.slices)}
		if out.Time == 0 || this.Share() < out.Share() {
			out = this
		}
	}
	out.Lost, out.Events, out.Drawn, out.Cut, out.Chosen = parts.lost, events, drawn, cut, chosen
	// The lost ones may all have been of this kind and process, or none of them.
	if out.Bias = math.Abs(total) * slowed; kind == profile.OffCPU {
		out.Bias += float64(parts.lostWaitTime)
	} else {
		out.Bias += math.Abs(total) * float64(parts.lostEvents) / float64(max(events, 1))
	}
	return out
}

// missed is how long the window had a process before probes were attached to it. For a program
// started within a recording, it is the time that its VM needs to load, and the agent to find it.
// Sums are not scaled up for it: the start of a program is not representative.
func (parts *CoveredParts) missed(sums map[*Coverage]*mainSums, noticed time.Duration) (missed time.Duration) {
	for c := range sums {
		if c == nil {
			continue // counted without probes
		}
		if born := c.BornAt(); born != 0 {
			missed = max(missed, born-max(parts.began, noticed))
		}
	}
	return missed
}

// Notes are a profile.PartNote for each plan that was not observed all the time and of which no
// process in the window has events: of the others the processes' Events.Basis has it. They are
// sorted.
func (parts *CoveredParts) Notes(events iter.Seq[*EventSet]) (list []string) {
	seen := map[*Coverage]bool{}
	for set := range events {
		for _, r := range set {
			if r == nil {
				continue
			}
			for c := range r.sums {
				seen[c] = true
			}
		}
	}
	for c := range parts.of {
		if note, ok := parts.note(c); ok && !seen[c] {
			list = append(list, note)
		}
	}
	slices.Sort(list)
	return list
}

// note says that a plan was not observed all the time; ok is false if it was, or if it is not known
// why not.
func (parts *CoveredParts) note(c *Coverage) (sentence string, ok bool) {
	part, known := parts.of[c]
	if !known || !part.partial() {
		return "", false
	}
	why := c.Reason()
	if why == nil {
		return "", false
	}
	share := part.share()
	return profile.PartNote{What: c.What, Kind: c.Kind, Least: share, Most: share, Windows: 1,
		Why: why.Error()}.String(), true
}
