package events

import (
	"fmt"
	"math"
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// A dividedTime is a part of a thread's time in a window that the scheduler counted: that on a CPU,
// or that in short waits. Draws say in which rows it was spent.
type dividedTime struct {
	pid, tid, window int64
	running          bool
	group            string // the thread's group: see stored.ThreadGroup
}

// A drawnTime is a sum over draws: of what each stands for, and of the squares of that.
type drawnTime struct{ time, squares float64 }

// draws is how many draws of equal weight say as much.
func (d drawnTime) draws() float64 { return d.time * d.time / d.squares }

// haveDraws reports whether samples of waits say what their draws stand for. Those of the history
// do not, nor those of older files.
func haveDraws(samples []*pprof.Sample) bool {
	return slices.ContainsFunc(samples, func(s *pprof.Sample) bool { return stacks.Number(s, stored.LabelDraw) > 0 })
}

// draw sets the variance of the time of a sample whose draws stand for that much each.
func (t *tally) draw(e *storedEvents, sample *pprof.Sample, each float64) {
	time := t.values[e.kind.Main()]
	t.drawn = time
	if stacks.Label(sample, stored.LabelBasis) != profile.Divided {
		t.variance = e.effect * time * each
		return
	}
	key := dividedTime{
		stacks.ProcessID(sample), stacks.Number(sample, stored.LabelTID), stacks.Number(sample, stored.LabelWindow),
		stacks.Label(sample, stored.LabelState) == cause.Running,
		stored.ThreadGroup(stacks.Label(sample, stored.LabelThread)),
	}
	t.divided = map[dividedTime]drawnTime{key: {time, time * each}}
}

// dividedVariance is the variance of the part of t of the divided times of all.
//
// A divided time R of n draws, k of which are of t, gives t the part R k/n. Its variance is R²
// s(1-s)/n, where s is the true part. s is estimated by (k+p)/(n+1), where p is the part that t has
// of the times of all threads of the group: few draws of one thread may all be of the same row by
// chance. That makes s(1-s) too small by the factor 1 - n/(n+1)² on average if p is the true part
// of every thread, and too large if threads differ. p itself is that of half a draw more on either
// side. Fewer than twenty draws of a group say too little of p: then R counts as not known.
func (t *tally) dividedVariance(all *tally) (variance float64) {
	type groupKey struct {
		pid     int64
		running bool
		group   string
	}
	type parts struct{ part, all, draws float64 }
	groups := map[groupKey]*parts{}
	groupOf := func(key dividedTime) *parts {
		of := groupKey{key.pid, key.running, key.group}
		if groups[of] == nil {
			groups[of] = &parts{}
		}
		return groups[of]
	}
	for key, of := range t.divided {
		groupOf(key).part += of.time
	}
	for key, of := range all.divided {
		g := groupOf(key)
		g.all += of.time
		g.draws += of.draws()
	}
	for key, of := range all.divided {
		g, n := groupOf(key), of.draws()
		if g.part == 0 {
			continue
		}
		if g.draws < 2*leastEvents {
			variance += t.divided[key].squares
			continue
		}
		p := (g.part/g.all*g.draws + 0.5) / (g.draws + 1)
		s := min((t.divided[key].time/of.time*n+p)/(n+1), 1)
		variance += of.squares * s * (1 - s) * (n + 1) * (n + 1) / (n*n + n + 1)
	}
	return variance
}

// apart is the variance of the main value if that of no divided time is known: of one part of it,
// without the rest.
func (t *tally) apart() float64 {
	variance := t.variance
	for _, of := range t.divided {
		variance += of.squares
	}
	return variance
}

// timeWithin is half of the 95 % interval of the time of t, which is a part of all. It is 0 if
// every wait of t was recorded, and +Inf if it is more than that time: then too few draws are
// known.
func (t *tally) timeWithin(i int, all *tally) float64 {
	variance := t.variance + t.dividedVariance(all)
	if variance == 0 {
		return 0
	}
	each := variance / t.drawn // variance as if draws stood for that much each
	if half := each * poissonWithin(t.drawn/each); half <= t.values[i] {
		return half
	}
	return math.Inf(1)
}

// poissonWithin is by how much the mean of a Poisson distribution may be larger than the n that
// were drawn, at the end of the 95 % interval: the further one. It is the formula of Wilson and
// Hilferty (1931), within 1 % for 1 and more.
func poissonWithin(n float64) float64 {
	m := n + 1
	return m*math.Pow(1-1/(9*m)+normal95/(3*math.Sqrt(m)), 3) - n
}

// timeIntervalColumns is the interval of a time, in percent of it.
func (e *storedEvents) timeIntervalColumns(i int, all *tally) []eventColumn {
	if !e.draws || e.partly() {
		return nil
	}
	return []eventColumn{{"±95%", func(t tally) string {
		if t.values[i] == 0 {
			return "-"
		}
		return halfWidth(100*t.timeWithin(i, all)/t.values[i], "%")
	}}}
}

const (
	// vagueTime is the part of a time from which on its interval says little of it.
	vagueTime = 0.5
	// muchVague is the part of the time of threads that are not idle, in methods whose time is
	// vague, from which on a recording is approximate.
	muchVague = 0.25
)

// VagueTimes says how much of the time is in methods of which too few short waits were drawn, if
// that is much; "" otherwise.
func VagueTimes(p *pprof.Profile) string {
	kind, ok := stacks.EventKindOf(p)
	if !ok || kind != profile.OffCPU && kind != profile.Wall {
		return ""
	}
	e, err := readEvents(p, kind)
	if err != nil || !e.draws {
		return ""
	}
	var byMethod eventGroups[string]
	var all, busy tally
	for sample, t := range e.all() {
		all.add(t)
		if partOf(kind, sample).class != cause.Idle {
			busy.add(t)
			byMethod.get(e.site(sample)).add(t)
		}
	}
	const most = 100 // methods: the others have little time
	main, vague := kind.Main(), 0.0
	for i, method := range byMethod.sorted(main) {
		if i < most && method.timeWithin(main, &all) > vagueTime*method.values[main] {
			vague += method.values[main]
		}
	}
	if vague <= muchVague*busy.values[main] {
		return ""
	}
	return fmt.Sprintf("%s of the time of threads that were not idle is in methods with few samples or few "+
		"sampled short waits", layout.Percent(vague/busy.values[main]))
}
