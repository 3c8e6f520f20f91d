package lanes

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Lanes returns the lanes of a process in a window of that length, nil if it has none. name is the
// name of a thread, "" if it has none, and causeOf the cause of a row.
//
// What remains of a thread's time is running. Where it is known how long the thread was on a CPU,
// waits that stand for others are scaled so that both add up to the time that it existed. Such
// waits are where they were drawn, or where there is room for them next to that.
func (r *Recorder[P, R]) Lanes(
	p P, length time.Duration, name func(tid uint32) string, causeOf func(R) string,
) *profile.Lanes {
	threads := r.byProcess[p]
	if len(threads) == 0 {
		return nil
	}
	for length > r.width()*maxSteps {
		r.double() // nothing was added for long
	}
	step := r.width()
	out := &profile.Lanes{Step: step, Steps: int((length + step - 1) / step), LeftOut: r.leftOut[p]}
	c := canvas{step: float64(step), steps: out.Steps, index: make(map[string]int), exists: make([]float64, out.Steps),
		room: make([]float64, out.Steps)}
	type lane struct {
		profile.Lane
		busy float64
	}
	var all []lane
	for tid, t := range threads {
		if t.leftOut || !t.dated {
			continue
		}
		l := lane{Lane: profile.Lane{TID: int(tid), Thread: cmp.Or(name(tid), t.name)}}
		draw(&c, t, length, causeOf)
		l.busy = c.total - c.sum(cause.Idle)
		if l.From, l.Runs = c.runs(); len(l.Runs) > 0 {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b lane) int { return cmp.Or(cmp.Compare(b.busy, a.busy), cmp.Compare(a.TID, b.TID)) })
	if more := len(all) - MaxLanes; more > 0 {
		all, out.LeftOut = all[:MaxLanes], out.LeftOut+more
	}
	for _, l := range all {
		out.Threads = append(out.Threads, l.Lane)
	}
	out.Causes = c.causes
	return out
}

// A canvas is where one lane after the other is drawn.
type canvas struct {
	step   float64 // ns
	steps  int
	causes []string
	index  map[string]int // index of each cause in causes
	times  [][]float64    // by cause, then by step: ns
	exists []float64      // by step: how long the thread existed in it
	room   []float64      // part of exists that no wait has
	total  float64        // sum of exists
}

// row returns the times of a cause.
func (c *canvas) row(name string) []float64 {
	at, known := c.index[name]
	if !known {
		at = len(c.causes)
		c.index[name], c.causes = at, append(c.causes, name)
		c.times = append(c.times, make([]float64, c.steps))
	}
	return c.times[at]
}

func (c *canvas) sum(name string) (sum float64) {
	if at, known := c.index[name]; known {
		for _, t := range c.times[at] {
			sum += t
		}
	}
	return sum
}

// put adds as much of a time to a step as there is room, and returns the rest.
func (c *canvas) put(row []float64, step int, time float64) (rest float64) {
	fits := min(time, c.room[step])
	row[step] += fits
	c.room[step] -= fits
	return time - fits
}

// draw draws the lane of one thread.
func draw[R comparable](c *canvas, t *thread[R], length time.Duration, causeOf func(R) string) {
	c.total = 0
	for _, row := range c.times {
		clear(row)
	}
	begun, ended := float64(t.begun), float64(min(t.ended, length))
	for i := range c.exists {
		c.exists[i] = max(min(ended, float64(i+1)*c.step)-max(begun, float64(i)*c.step), 0)
		c.total += c.exists[i]
	}
	copy(c.room, c.exists)
	exact := 0.0
	for _, one := range t.exact {
		row := c.row(causeOf(one.row))
		for i := int(one.from); i < min(int(one.from+one.steps), c.steps); i++ {
			exact += float64(one.time) - c.put(row, i, float64(one.time))
		}
	}
	c.drawn(t.drawnBy(c, causeOf), t.known, c.total-float64(t.on)-exact)
	running := c.row(cause.Running)
	for i := range c.room {
		running[i] += c.room[i]
	}
}

// A share is time of a cause in a step.
type share struct {
	row  []float64
	step int
	time float64
}

// drawnBy are the waits that stand for others.
func (t *thread[R]) drawnBy(c *canvas, causeOf func(R) string) (list []share) {
	for _, one := range t.drawn {
		row := c.row(causeOf(one.row))
		for i := int(one.from); i < min(int(one.from+one.steps), c.steps); i++ {
			list = append(list, share{row, i, float64(one.time)})
		}
	}
	return list
}

// drawn draws waits that stand for others. If it is known for how long these were, they are scaled
// to that.
func (c *canvas) drawn(list []share, known bool, time float64) {
	sum := 0.0
	for _, s := range list {
		sum += s.time
	}
	switch {
	case known && sum > 0:
		for i := range list {
			list[i].time *= max(time, 0) / sum
		}
	case known && time > c.step/100: // none was drawn
		room := 0.0
		for _, r := range c.room {
			room += r
		}
		row := c.row(cause.Unknown)
		for i, r := range c.room {
			if r > 0 {
				c.put(row, i, r*min(time/room, 1))
			}
		}
		return
	}
	rest := list[:0]
	for _, s := range list {
		if s.time = c.put(s.row, s.step, s.time); s.time > 0 {
			rest = append(rest, s)
		}
	}
	near := nearest{c: c, left: make([]int, c.steps), right: make([]int, c.steps)}
	for i := range c.steps {
		near.left[i], near.right[i] = i, i
	}
	for _, s := range rest {
		for s.time > 0 {
			at := near.find(s.step)
			if at < 0 {
				break
			}
			s.time = c.put(s.row, at, s.time)
		}
	}
}

// nearest finds the step with room that is next to another one. Steps that were full are skipped
// the next time.
type nearest struct {
	c           *canvas
	left, right []int // by step: one on that side with room, or further
}

// find returns a step, -1 if there is no room.
func (n *nearest) find(step int) int {
	left, right := n.side(n.left, step, -1), n.side(n.right, step, 1)
	switch {
	case left < 0 && right >= n.c.steps:
		return -1
	case left < 0, right < n.c.steps && right-step < step-left:
		return right
	}
	return left
}

// side returns the next step with room in one direction; it is outside if there is none.
func (n *nearest) side(next []int, step, direction int) int {
	at := step
	for at >= 0 && at < n.c.steps && n.c.room[at] <= 0 {
		if next[at] == at {
			next[at] = at + direction
		}
		at = next[at]
	}
	for step != at && step >= 0 && step < n.c.steps { // shorten the way
		step, next[step] = next[step], at
	}
	return at
}

// runs returns the lane in percent of its steps. What rounding takes from a cause, or gives it, is
// made up for in later steps.
func (c *canvas) runs() (from int, runs []profile.LaneRun) {
	carry := make([]float64, len(c.causes))
	type part struct {
		profile.LanePart
		wanted float64
	}
	var parts []part
	var shown []profile.LanePart
	for i := range c.steps {
		all := int(math.Round(100 * c.exists[i] / c.step))
		if all == 0 {
			continue
		}
		parts = parts[:0]
		left := all
		for at, row := range c.times {
			if row[i] <= 0 {
				continue
			}
			wanted := 100*row[i]/c.step + carry[at]
			whole := min(int(max(wanted, 0)), left)
			left -= whole
			parts = append(parts, part{profile.LanePart{Cause: at, Percent: whole}, wanted})
		}
		for ; left > 0 && len(parts) > 0; left-- {
			most := 0
			for j := range parts {
				if parts[j].wanted-float64(parts[j].Percent) > parts[most].wanted-float64(parts[most].Percent) {
					most = j
				}
			}
			parts[most].Percent++
		}
		shown = shown[:0]
		for _, p := range parts {
			carry[p.Cause] = p.wanted - float64(p.Percent)
			if p.Percent > 0 {
				shown = append(shown, p.LanePart)
			}
		}
		slices.SortFunc(shown, func(a, b profile.LanePart) int {
			return cmp.Or(cmp.Compare(b.Percent, a.Percent), cmp.Compare(a.Cause, b.Cause))
		})
		if len(runs) == 0 {
			from = i
		} else if last := &runs[len(runs)-1]; slices.Equal(last.Parts, shown) {
			last.Steps++
			continue
		}
		runs = append(runs, profile.LaneRun{Steps: 1, Parts: slices.Clone(shown)})
	}
	return from, runs
}
