package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A laneRow is what one thread did, in all windows.
type laneRow struct {
	process, group, thread string
	tid                    int64
	lanes                  []lanePlace
	// All three are ns: how long it existed, what of that is neither idle nor unknown, and what is
	// running.
	all, busy, running float64
}

// A lanePlace is where a lane is in storedLanes.
type lanePlace struct{ of, thread int }

// maxTimeline is how long a timeline is at most.
const maxTimeline = 366 * 24 * time.Hour

// storedLanes are the lanes of a profile, of all processes or of one.
type storedLanes struct {
	list     []stored.Lanes
	from, to time.Time
	leftOut  int
	// noRoom is when the first window begins that lacks threads, for the file had no room for them;
	// zero if none does.
	noRoom time.Time
}

// lanesOf reads the lanes of a profile. It fails if there are none.
func lanesOf(p *pprof.Profile, pid int64) (*storedLanes, error) {
	m, err := stored.MetadataOf(p)
	if err != nil && !errors.Is(err, stored.ErrNone) {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if err != nil || len(m.Lanes) == 0 {
		return nil, stored.ErrNoLanes
	}
	l := new(storedLanes)
	pids, leftOut := make(map[int64]bool), make(map[int64]int)
	for _, of := range stored.JoinLanes(m.Lanes) {
		pids[of.PID] = true
		if pid == 0 || of.PID == pid {
			l.list = append(l.list, of)
			leftOut[of.PID] = max(leftOut[of.PID], of.LeftOut) // several windows may lack the same thread
			if of.NoRoom > 0 && (l.noRoom.IsZero() || of.Start.Before(l.noRoom)) {
				l.noRoom = of.Start
			}
		}
	}
	for _, n := range leftOut {
		l.leftOut += n
	}
	if len(l.list) == 0 {
		return nil, fmt.Errorf("process %d has no timeline: there are those of %s", pid,
			numbers(slices.Sorted(maps.Keys(pids))))
	}
	return l, l.span()
}

// numbers lists the first numbers of a list.
func numbers(list []int64) string {
	const most = 8
	var words []string
	for _, n := range list[:min(len(list), most)] {
		words = append(words, fmt.Sprint(n))
	}
	text := strings.Join(words, ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// span finds the time of all lanes. It fails if most of that was not recorded.
func (l *storedLanes) span() error {
	type window struct{ from, to time.Time }
	windows := make(map[window]bool)
	for _, of := range l.list {
		windows[window{of.Start, of.End()}] = true
	}
	recorded := 0.0
	for w := range windows {
		if l.from.IsZero() || w.from.Before(l.from) {
			l.from = w.from
		}
		if w.to.After(l.to) {
			l.to = w.to
		}
		recorded += float64(w.to.Sub(w.from))
	}
	if whole := l.to.Sub(l.from); recorded < float64(whole)/2 || whole > maxTimeline {
		return fmt.Errorf("the windows are not consecutive: they have %v, within %v; name one file, or choose one "+
			"with --window",
			time.Duration(min(recorded, float64(whole))).Round(time.Millisecond), whole.Round(time.Millisecond))
	}
	return nil
}

// rows are the threads, each with its lanes of all windows.
func (l *storedLanes) rows() (rows []*laneRow) {
	type threadID struct{ pid, tid int64 }
	index := make(map[threadID]*laneRow)
	for i := range l.list {
		of := &l.list[i]
		for j := range of.Threads {
			t := &of.Threads[j]
			id := threadID{of.PID, t.TID}
			row := index[id]
			if row == nil {
				row = &laneRow{tid: t.TID, process: fmt.Sprintf("%s (pid %d)", cmp.Or(of.Comm, stored.Unnamed), of.PID)}
				index[id], rows = row, append(rows, row)
			}
			row.thread = cmp.Or(t.Thread, row.thread, stored.Unnamed)
			row.group = stored.ThreadGroup(row.thread)
			row.lanes = append(row.lanes, lanePlace{i, j})
			row.sum(of, t)
		}
	}
	return rows
}

// sum adds up a lane.
func (r *laneRow) sum(of *stored.Lanes, t *stored.Lane) {
	runs, _ := t.Steps(len(of.Causes), of.Steps) // what was read from a file is valid
	for _, run := range runs {
		for _, part := range run.Parts {
			time := float64(run.Steps) * float64(of.Step) * float64(part.Percent) / 100
			r.all += time
			switch of.CauseName(part.Cause) {
			case cause.Idle, cause.Unknown:
				continue
			case cause.Running:
				r.running += time
			}
			r.busy += time
		}
	}
}

// hasWork reports whether a lane shows anything but a thread with nothing to do, or one that never
// went on.
func (r *laneRow) hasWork() bool { return r.busy >= 0.02*r.all }

// draw returns what a thread did in so many columns of equal length: for most of each, the place of
// the cause in laneMarks, one more for any other cause, and -1 for nothing. times has a number for
// each column and cause, which it overwrites.
func (l *storedLanes) draw(r *laneRow, times [][len(laneMarks) + 1]float64) (main []int) {
	clear(times)
	column := float64(max(l.to.Sub(l.from), 1)) / float64(len(times))
	for _, place := range r.lanes {
		of := &l.list[place.of]
		t := &of.Threads[place.thread]
		runs, _ := t.Steps(len(of.Causes), of.Steps)
		from := float64(of.Start.Sub(l.from)) + float64(t.From)*float64(of.Step)
		for _, run := range runs {
			to := from + float64(run.Steps)*float64(of.Step)
			for _, part := range run.Parts {
				mark, share := laneMarkOf(of.CauseName(part.Cause)), float64(part.Percent)/100
				for i := max(int(from/column), 0); i < len(times); i++ {
					overlap := min(to, float64(i+1)*column) - max(from, float64(i)*column)
					if overlap <= 0 && float64(i)*column > to {
						break
					}
					times[i][mark] += share * max(overlap, 0)
				}
			}
			from = to
		}
	}
	for i := range times {
		most, all := -1, 0.0
		for mark, time := range times[i] {
			all += time
			if time > 0 && (most < 0 || time > times[i][most]) {
				most = mark
			}
		}
		if all < column/2 { // it did not exist for most of it
			most = -1
		}
		main = append(main, most)
	}
	return main
}
