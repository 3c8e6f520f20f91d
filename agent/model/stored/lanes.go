package stored

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Lanes are what the threads of one process did over time, in one window: see profile.Lanes.
type Lanes struct {
	Comm    string        `json:"comm"`
	PID     int64         `json:"pid"`
	Service string        `json:"service,omitempty"`
	Window  int64         `json:"window,omitempty"` // 0 if the profile is of one window
	Start   time.Time     `json:"start"`
	Step    time.Duration `json:"step"`
	Steps   int           `json:"steps"`
	Causes  []string      `json:"causes"`
	Threads []Lane        `json:"threads"`
	LeftOut int           `json:"left_out,omitempty"` // threads, for they were too many in the process
	NoRoom  int           `json:"no_room,omitempty"`  // threads, for the profile has no room for more
}

// A Lane is what one thread did. Runs are consecutive equal steps, as text:
//
//	runs  = { run }
//	run   = [ count ] step            how many steps, 1 if it is not there
//	step  = letter                    a cause, for all of the step
//	      | "(" { letter percent } ")"
//
// The letters a to z and A to Z are the causes, in their order. 40a2(b70a30) is 40 steps of the
// first cause, and two of which the second has 70 % and the first the rest.
type Lane struct {
	TID    int64  `json:"tid"`
	Thread string `json:"thread,omitempty"`
	From   int    `json:"from,omitempty"` // the first step
	Runs   string `json:"runs"`
}

const laneLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// Bounds on lanes.
const (
	// MaxLaneCauses is how many causes lanes of one process may have.
	MaxLaneCauses = len(laneLetters)
	// MaxLaneText bounds Lane.Runs of all lanes of a profile together, bytes.
	MaxLaneText = 8 << 20
	// MaxLaneCount bounds the lanes of a profile.
	MaxLaneCount = 1 << 16
	// MaxLaneList bounds Metadata.Lanes: processes and windows.
	MaxLaneList = 1 << 14
)

// LaneRoom is what lanes a profile still has room for.
type LaneRoom struct{ Lanes, Text int }

// NewLanes makes the stored form of the lanes of a process, and takes the room for it. Threads that
// there is no room for are left out, from the first one on. Of causes that are too many nothing is
// stored; package cause has half as many.
func NewLanes(proc *profile.Process, l *profile.Lanes, start time.Time, window int64, room *LaneRoom) Lanes {
	out := Lanes{Comm: proc.Comm, PID: int64(proc.PID), Service: proc.Service, Window: window, Start: start,
		Step: l.Step, Steps: l.Steps,
		Causes: l.Causes[:min(len(l.Causes), MaxLaneCauses)], LeftOut: l.LeftOut}
	for i := range l.Threads {
		t := &l.Threads[i]
		text := formatRuns(t.Runs)
		if room.Lanes == 0 || room.Text < len(text) {
			out.NoRoom = len(l.Threads) - i
			room.Lanes = 0 // the next windows would have holes
			break
		}
		room.Lanes, room.Text = room.Lanes-1, room.Text-len(text)
		out.Threads = append(out.Threads, Lane{TID: int64(t.TID), Thread: t.Thread, From: t.From, Runs: text})
	}
	return out
}

func formatRuns(runs []profile.LaneRun) string {
	var b strings.Builder
	for _, r := range runs {
		if r.Steps != 1 {
			b.WriteString(strconv.Itoa(r.Steps))
		}
		if len(r.Parts) == 1 && r.Parts[0].Percent == 100 && r.Parts[0].Cause < MaxLaneCauses {
			b.WriteByte(laneLetters[r.Parts[0].Cause])
			continue
		}
		b.WriteByte('(')
		for _, p := range r.Parts {
			if p.Cause < MaxLaneCauses {
				b.WriteByte(laneLetters[p.Cause])
				b.WriteString(strconv.Itoa(p.Percent))
			}
		}
		b.WriteByte(')')
	}
	return b.String()
}

var errRuns = errors.New("malformed lane")

// Steps reads the runs of a lane. It fails if there are more than so many causes or steps.
func (l *Lane) Steps(causes, steps int) (runs []profile.LaneRun, err error) {
	text := l.Runs
	number := func(most int) (n int, ok bool) {
		digits := 0
		for digits < len(text) && '0' <= text[digits] && text[digits] <= '9' {
			if n = 10*n + int(text[digits]-'0'); n > most {
				return 0, false
			}
			digits++
		}
		ok = digits > 0 && n > 0
		text = text[digits:]
		return n, ok
	}
	letter := func() (cause int, ok bool) {
		if text == "" {
			return 0, false
		}
		cause = strings.IndexByte(laneLetters, text[0])
		text = text[1:]
		return cause, 0 <= cause && cause < causes
	}
	left := steps - l.From
	if l.From < 0 || left < 0 {
		return nil, errRuns
	}
	for text != "" {
		run := profile.LaneRun{Steps: 1}
		if c := text[0]; '0' <= c && c <= '9' {
			n, ok := number(left)
			if !ok {
				return nil, errRuns
			}
			run.Steps = n
		}
		if left -= run.Steps; left < 0 || text == "" {
			return nil, errRuns
		}
		if text[0] != '(' {
			cause, ok := letter()
			if !ok {
				return nil, errRuns
			}
			run.Parts = []profile.LanePart{{Cause: cause, Percent: 100}}
			runs = append(runs, run)
			continue
		}
		text = text[1:]
		for sum := 0; ; {
			if text == "" {
				return nil, errRuns
			}
			if text[0] == ')' {
				text = text[1:]
				break
			}
			cause, ok := letter()
			if !ok || slices.ContainsFunc(run.Parts, func(p profile.LanePart) bool { return p.Cause == cause }) {
				return nil, errRuns
			}
			percent, ok := number(100)
			if sum += percent; !ok || sum > 100 {
				return nil, errRuns
			}
			run.Parts = append(run.Parts, profile.LanePart{Cause: cause, Percent: percent})
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// JoinLanes returns lanes in which waits that went on in the next window have the cause that is
// known there: the stack of a wait is only read when it ends. Windows are of one process and follow
// one another if a step of the later one begins where the earlier one ends. It changes nothing that
// the list refers to.
func JoinLanes(list []Lanes) []Lanes {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Lanes) int { return a.Start.Compare(b.Start) })
	later := make(map[int64]*Lanes) // by process
	for i := len(list) - 1; i >= 0; i-- {
		l := &list[i]
		if next := later[l.PID]; next != nil && l.End().Sub(next.Start).Abs() <= l.Step {
			l.join(next)
		}
		later[l.PID] = l
	}
	return list
}

// join gives threads that wait at the end, nobody knows what for, the causes with which the next
// window begins.
func (l *Lanes) join(next *Lanes) {
	begins := make(map[int64]string, len(next.Threads))
	for i := range next.Threads {
		t := &next.Threads[i]
		runs, _ := t.Steps(len(next.Causes), next.Steps)
		if t.From == 0 && len(runs) > 0 && len(runs[0].Parts) == 1 {
			begins[t.TID] = next.CauseName(runs[0].Parts[0].Cause)
		}
	}
	l.Causes, l.Threads = slices.Clone(l.Causes), slices.Clone(l.Threads)
	for i := range l.Threads {
		t := &l.Threads[i]
		what := begins[t.TID]
		if what == "" || what == cause.Running || what == cause.Runnable || what == cause.Throttled ||
			what == cause.Unknown {
			continue
		}
		runs, _ := t.Steps(len(l.Causes), l.Steps)
		at := slices.Index(l.Causes, what)
		if at < 0 {
			at = len(l.Causes)
		}
		changed := false
		for j := len(runs) - 1; j >= 0; j-- {
			parts := runs[j].Parts
			if len(parts) != 1 || l.CauseName(parts[0].Cause) != cause.Unknown {
				break
			}
			parts[0].Cause, changed = at, true
		}
		if !changed || at >= MaxLaneCauses {
			continue
		}
		if at == len(l.Causes) {
			l.Causes = append(l.Causes, what)
		}
		t.Runs = formatRuns(runs)
	}
}

// CauseName is the cause with that place; Unnamed if there is none.
func (l *Lanes) CauseName(place int) string {
	if place < 0 || place >= len(l.Causes) || l.Causes[place] == "" {
		return Unnamed
	}
	return l.Causes[place]
}

// End is when the last step ends.
func (l *Lanes) End() time.Time { return l.Start.Add(time.Duration(l.Steps) * l.Step) }

// maxLaneStep is how long a step is at most. No sum of steps overflows.
const maxLaneStep = math.MaxInt64 / profile.MaxLaneSteps / 1024

// tidyLanes brings lanes into their ranges. Those that are malformed are left out.
func (m *Metadata) tidyLanes() {
	m.Lanes = shorten(m, m.Lanes, MaxLaneList)
	lanes, text := MaxLaneCount, MaxLaneText
	m.Lanes = slices.DeleteFunc(m.Lanes, func(l Lanes) bool {
		return l.Step <= 0 || l.Step > maxLaneStep ||
			!inRange(l.Start)
	})
	for i := range m.Lanes {
		l := &m.Lanes[i]
		l.Comm, l.Service, l.Window, l.LeftOut = Printable(l.Comm), Printable(l.Service), max(l.Window, 0),
			max(l.LeftOut, 0)
		l.NoRoom = max(l.NoRoom, 0)
		l.Start, l.Steps = l.Start.UTC(), min(max(l.Steps, 0), profile.MaxLaneSteps)
		l.Causes = slices.Clone(l.Causes[:min(len(l.Causes), MaxLaneCauses)])
		for j := range l.Causes {
			l.Causes[j] = Printable(l.Causes[j])
		}
		kept := l.Threads[:0:0]
		for _, t := range l.Threads {
			lanes, text = lanes-1, text-len(t.Runs)
			if lanes < 0 || text < 0 {
				l.NoRoom++
				continue
			}
			if _, err := t.Steps(len(l.Causes), l.Steps); err != nil {
				l.LeftOut++
				continue
			}
			t.Thread = Printable(t.Thread)
			kept = append(kept, t)
		}
		l.Threads = kept
	}
}

// inRange reports whether a time is one that a recording may begin at.
func inRange(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 9999 }

// ErrNoLanes is the error for a profile without lanes.
var ErrNoLanes = errors.New("the profile has no timelines of threads: record one with -e wall or -e offcpu, and name " +
	"that file")
