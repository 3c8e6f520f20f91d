package sink

import (
	"bufio"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// coverages say of processes of which events were observed only part of the time how large that part is, over all windows:
//
//	java (pid 4711): observed 20% of the time, 4s of 20s, in 4 slices; values are scaled to all of it: 12300000000 ± 4200000000 bytes
//
// The interval is a 95 % interval of the process's sum, for what of its variance comes of the choice of slices. It is
// unknown if there are too few.
type coverages struct {
	kind  agent.EventKind
	order []*covered
	of    map[int]*covered // by pid
}

type covered struct {
	comm string
	pid  int
	sum  float64 // of the main value
	agent.Coverage
}

func (c *coverages) add(proc *agent.Process, e *agent.Events) {
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
	all.Time += e.Coverage.Time
	all.Observed += e.Coverage.Observed
	all.Slices += e.Coverage.Slices
	all.Within = math.Hypot(all.Within, e.Coverage.Within) // windows vary independently
	for _, row := range e.Rows {
		if row.What != exactKind {
			all.sum += row.Values[e.Kind.Main()]
		}
	}
}

// exactKind is agent.EventLabels.What of counts of every object.
const exactKind = "exact"

// lines are the comments: one for each process of which part was not observed.
func (c *coverages) lines() (list []string) {
	for _, p := range c.order {
		if !p.Partial() {
			continue
		}
		within := "unknown"
		if !math.IsInf(p.Within, 1) {
			within = strconv.FormatFloat(p.Within, 'f', 0, 64)
		}
		list = append(list, fmt.Sprintf("%s (pid %d): observed %s of the time, %v of %v, in %s; values are scaled to all of it: %.0f ± %s %s",
			printable(p.comm), p.pid, percent(p.Share(), 1), p.Observed.Round(time.Second/10), p.Time.Round(time.Second/10), plural(p.Slices, "slice"), p.sum, within, mainValue(c.kind).Unit))
	}
	return list
}

var coveragePattern = regexp.MustCompile(`: observed [0-9.]+% of the time, .*: ([0-9]{1,30}) ± ([0-9]{1,30}|unknown) [a-z]+$`)

// observedParts returns what the comments of a profile say of processes that were observed part of the time: one line for
// each, and half of the interval of the sum of them all, which is infinite if that of one is unknown.
func observedParts(p *profile.Profile) (lines []string, within float64) {
	for _, comment := range p.Comments {
		m := coveragePattern.FindStringSubmatch(comment)
		if m == nil {
			continue
		}
		lines = append(lines, comment)
		half, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			half = math.Inf(1)
		}
		within += half // processes share the slices: they may all have been busy in them
	}
	return lines, within
}

// widen makes variances so much larger that the interval of the sum of all samples holds what comes of the choice of slices,
// too. Each sample has its part of that: survey sampling calls the factor the design effect.
func (e *storedEvents) widen() {
	_, within := observedParts(e.stacks.profile)
	if within == 0 {
		return
	}
	chance := 0.0
	for _, t := range e.all() {
		chance += t.variance
	}
	if chance > 0 {
		e.effect = 1 + within/normal95*within/normal95/chance
	}
}

// writeObserved writes what was observed part of the time.
func (e *storedEvents) writeObserved(out *bufio.Writer, opts *ViewOptions) {
	lines, _ := observedParts(e.stacks.profile)
	for _, line := range lines {
		writeFolded(out, line, opts.Width)
	}
}
