// Package wall unites what threads do on a CPU and off it.
//
//	p.Events = append(p.Events, wall.Events(p, period))
package wall

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// NotSampled stands for the stacks of a thread that ran without being sampled, or whose waits were
// all too short to be drawn.
const NotSampled = "[not sampled]"

var notSampled = guest.Marker(NotSampled)

// maxContexts bounds the contexts of a process.
const maxContexts = 1 << 18

// A thread is what is known of one.
type thread struct {
	profile.ThreadTime
	known   bool    // ThreadTime is
	ran     float64 // by samples, ns
	samples uint64
	waited  float64 // off the CPU, by samples, ns
	exact   float64 // the part of it in waits that were recorded each
}

// scales are what the thread's samples are multiplied by: those of CPU time, exact waits, and waits
// that were drawn.
func (t *thread) scales() (ran, exact, drawn float64) {
	ran, exact, drawn = 1, 1, 1
	if !t.known {
		return ran, exact, drawn
	}
	if t.ran > 0 {
		ran = float64(t.On) / t.ran
	}
	off := float64(t.off())
	if t.exact > off { // by the precision of the clocks
		exact = off / t.exact
	}
	if rest := t.waited - t.exact; rest > 0 {
		drawn = max(off-t.exact, 0) / rest
	}
	return ran, exact, drawn
}

func (t *thread) off() time.Duration { return max(t.Wall-t.On, 0) }

// basis says how well the parts of its time are known that are estimates: profile.Drawn or
// profile.Divided. Those of threads that ended are known as draws are: few of these threads were
// drawn, and others may have done something else.
func (t *thread) basis() string {
	if t.known && t.TID != profile.EndedThreads {
		return profile.Divided
	}
	return profile.Drawn
}

// missing is the time for which there is no sample.
func (t *thread) missing() (ran, waited float64) {
	if !t.known {
		return 0, 0
	}
	if t.ran == 0 {
		ran = float64(t.On)
	}
	if t.waited <= t.exact {
		waited = max(float64(t.off())-t.exact, 0)
	}
	return ran, waited
}

// Events returns the wall time of p's threads, from its samples of CPU time, each of which stands for
// period, and from its off-CPU time. How long a thread was on a CPU and off it is known exactly,
// and what of it is where and why is estimated: samples are scaled so that they add up to it. Waits
// that were recorded each are not scaled. Of a thread none of whose short waits was drawn, the one
// counts for all in which it was when the window ended.
func Events(p *profile.Process, period time.Duration) *profile.Events {
	w := &profile.Events{Kind: profile.Wall, Tree: &cct.Tree[symbol.Symbol]{Limit: maxContexts},
		Coverage: &profile.Coverage{}}
	off := &profile.Events{}
	if i := slices.IndexFunc(p.Events, func(e *profile.Events) bool { return e.Kind == profile.OffCPU }); i >= 0 {
		off = p.Events[i]
	}
	threads := threadsOf(p, off, period)
	u := union{into: w, rows: map[rowKey]int{}}
	for _, t := range p.Threads {
		if t.Tree == nil {
			continue
		}
		of := threads.get(t.TID)
		scale, _, _ := of.scales()
		labels, each := running, scale*float64(period)
		labels.Value = of.basis()
		for id, n := range t.Tree.Nodes() {
			if n.Self > 0 {
				u.add(t.TID, t.Name, t.Tree.Stack(id), labels, n.Self, float64(n.Self)*each, float64(n.Self)*each*each)
			}
		}
	}
	for i := range off.Rows {
		row := &off.Rows[i]
		of, labels := threads.get(row.TID), row.EventLabels
		_, scale, drawn := of.scales()
		if row.Value == profile.Drawn {
			labels.Value, scale = of.basis(), drawn
		}
		u.add(row.TID, row.Thread, off.Tree.Stack(row.Context), labels, row.Events,
			scale*row.Values[profile.OffCPU.Main()], scale*scale*row.Values[profile.DrawSquares])
	}
	marker := []symbol.Symbol{notSampled}
	var partly int
	for _, t := range off.Times {
		ran, waited := threads.get(t.TID).missing()
		if ran > 0 {
			u.add(t.TID, t.Name, marker, running, 0, ran, 0)
		}
		switch {
		case waited > 0 && t.Seen > 0 && t.Seen <= len(off.Rows):
			row := &off.Rows[t.Seen-1]
			labels := row.EventLabels
			labels.Value = profile.Divided // by one draw
			u.add(t.TID, row.Thread, off.Tree.Stack(row.Context), labels, 0, waited, waited*waited)
		case waited > 0:
			u.add(t.TID, t.Name, marker, profile.EventLabels{Place: cause.Blocked, What: cause.Unknown}, 0, waited, 0)
		}
	}
	for _, t := range threads.byID {
		if !t.known {
			partly++
			w.Coverage.Drawn += float64(t.samples) * float64(period) * float64(period)
		}
	}
	slices.SortStableFunc(w.Rows, compareRows)
	for i := range w.Rows {
		w.Coverage.Events += w.Rows[i].Events
	}
	w.Basis, w.Lanes = slices.Clone(off.Basis), off.Lanes
	if partly > 0 {
		w.Basis = append(w.Basis, fmt.Sprintf("%d of %d threads ended early or were not followed from the "+
			"beginning: their samples are not scaled to their lifetime", partly, len(threads.byID)))
		if off.Coverage != nil {
			w.Coverage.Drawn += off.Coverage.Drawn
		}
	}
	return w
}

// threads are those of a process.
type threads struct {
	byID  map[int]*thread
	ended *thread // all that ended in the window, if their time is known: samples of some of them stand for the others
}

func (a *threads) get(tid int) *thread {
	t := a.byID[tid]
	switch {
	case t != nil:
	case a.ended != nil:
		t = a.ended
	default:
		t = &thread{}
		a.byID[tid] = t
	}
	return t
}

// threadsOf returns p's threads.
func threadsOf(p *profile.Process, off *profile.Events, period time.Duration) threads {
	all := threads{byID: map[int]*thread{}}
	for _, time := range off.Times {
		all.byID[time.TID] = &thread{ThreadTime: time, known: true}
	}
	all.ended = all.byID[profile.EndedThreads]
	for _, sampled := range p.Threads {
		t := all.get(sampled.TID)
		if sampled.Tree != nil {
			t.samples += sampled.Tree.Total()
			t.ran += float64(sampled.Tree.Total()) * float64(period)
		}
	}
	for i := range off.Rows {
		row := &off.Rows[i]
		t := all.get(row.TID)
		t.waited += row.Values[profile.OffCPU.Main()]
		if row.Value != profile.Drawn {
			t.exact += row.Values[profile.OffCPU.Main()]
		}
	}
	return all
}

func compareRows(a, b profile.EventRow) int {
	return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.TID, b.TID), cmp.Compare(a.Thread, b.Thread),
		cmp.Compare(a.Place, b.Place), cmp.Compare(a.What, b.What),
		cmp.Compare(a.Class, b.Class), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Offset, b.Offset),
		cmp.Compare(a.Value, b.Value))
}

// A union adds rows, those with the same key once.
type union struct {
	into *profile.Events
	rows map[rowKey]int // index in into.Rows
}

type rowKey struct {
	context cct.NodeID
	tid     int
	name    string // name of the thread
	profile.EventLabels
}

// running are the labels of time on a CPU.
var running = profile.EventLabels{Place: cause.Running, What: cause.Running}

func (u *union) add(
	tid int, name string, stack []symbol.Symbol, labels profile.EventLabels, events uint64, value, squares float64,
) {
	context := u.into.Tree.Add(stack, events)
	key := rowKey{context, tid, name, labels}
	i, known := u.rows[key]
	if !known {
		i = len(u.into.Rows)
		u.rows[key] = i
		u.into.Rows = append(u.into.Rows, profile.EventRow{Context: context, TID: tid, Thread: name,
			EventLabels: labels})
	}
	u.into.Rows[i].Events += events
	u.into.Rows[i].Values[profile.Wall.Main()] += value
	u.into.Rows[i].Values[profile.DrawSquares] += squares
}
