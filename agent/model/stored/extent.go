package stored

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// An Extent is a profile.Extent of one process, over all windows.
type Extent struct {
	Comm string `json:"comm"`
	PID  int64  `json:"pid"`
	profile.Extent
}

func (m *Metadata) tidyExtents() {
	m.Extents = shorten(m, m.Extents, maxList)
	for i := range m.Extents {
		e := &m.Extents[i]
		for _, s := range []*string{&e.Comm, &e.Subject, &e.What, &e.Unit, &e.Source} {
			*s = Printable(*s)
		}
		e.There = max(finite(e.There), 0)
		e.Observed = min(max(finite(e.Observed), 0), e.There)
		e.Missed = shorten(m, e.Missed, maxList)
		for j := range e.Missed {
			miss := &e.Missed[j]
			miss.Why, miss.Amount = Printable(miss.Why), max(finite(miss.Amount), 0)
		}
	}
}

// ExtentsTogether adds up the extents of all processes: one for each thing that was measured, the
// least observed one first.
func (m *Metadata) ExtentsTogether() (list []profile.Extent) {
	for i := range m.Extents {
		list = profile.AddExtents(list, m.Extents[i].Extent)
	}
	slices.SortStableFunc(list, func(a, b profile.Extent) int { return cmp.Compare(a.Share(), b.Share()) })
	return list
}

// extentSentences are on the processes of which less than profile.Enough was observed. Those of one
// name share a sentence if there are many.
func (m *Metadata) extentSentences() (list []string) {
	type subject struct{ comm, subject, what string }
	byName := map[subject][]*Extent{}
	of := func(e *Extent) subject { return subject{e.Comm, e.Subject, e.What} }
	for i := range m.Extents {
		if e := &m.Extents[i]; !e.Good() {
			byName[of(e)] = append(byName[of(e)], e)
		}
	}
	for i := range m.Extents {
		e := &m.Extents[i]
		switch same := byName[of(e)]; {
		case e.Good():
		case len(same) <= maxTotals:
			list = append(list, fmt.Sprintf("%s (pid %d): %s", e.Comm, e.PID, ExtentSentence(&e.Extent)))
		case same[0] == e:
			var sum profile.Extent
			for _, one := range same {
				sum.What, sum.Unit = one.What, one.Unit
				sum.Add(&one.Extent)
			}
			list = append(list, fmt.Sprintf("%s (%d processes): %s", e.Comm, len(same), ExtentSentence(&sum)))
		}
	}
	return list
}

// ExtentSentence says how much was observed, and why not all:
//
//	62 % of allocated bytes observed (182MB of 293MB counted by the JVM's counters), because threads ended before their first buffer was full (111MB)
//	no allocated bytes observed, although the JVM's counters counted 293MB
//	an unknown part of waits for locks was not observed, because virtual threads are not followed
func ExtentSentence(e *profile.Extent) string {
	text := ""
	switch {
	case e.There > 0 && e.Observed == 0:
		text = fmt.Sprintf("no %s observed, although %s counted %s", e.What, e.Source,
			ExtentAmount(e.Unit, e.There))
	case e.There > 0:
		text = fmt.Sprintf("%s of %s observed (%s of %s counted by %s)", SharePercent(e.Share()), e.What,
			ExtentAmount(e.Unit, e.Observed), ExtentAmount(e.Unit, e.There), e.Source)
	default:
		text = fmt.Sprintf("an unknown part of %s was not observed", e.What)
	}
	for i, miss := range e.Missed {
		if i == 0 {
			text += ", because "
		} else {
			text += "; "
		}
		if text += miss.Why; miss.Amount > 0 {
			text += " (" + ExtentAmount(e.Unit, miss.Amount) + ")"
		} else if e.There > 0 {
			text += " (amount unknown)"
		}
	}
	return text
}

// SharePercent writes a share in whole percent, rounded down: 94.9 % is not 95 %.
func SharePercent(share float64) string {
	if share > 0 && share < 0.01 {
		return "less than 1 %"
	}
	return fmt.Sprintf("%d %%", int(100*share+1e-9))
}

// ExtentAmount writes an amount in a unit of profile.Extent for people.
func ExtentAmount(unit string, v float64) string {
	switch unit {
	case UnitTime:
		d := time.Duration(v)
		switch {
		case d >= time.Hour:
			return d.Round(time.Second).String()
		case d >= time.Second:
			return fmt.Sprintf("%.3g s", d.Seconds())
		}
		return d.Round(max(d/1000, 1)).String()
	case UnitBytes:
		return ThreeDigits(v) + "B"
	}
	return ThreeDigits(v)
}
