// Package timeline writes what each thread of a stored profile did over time.
package timeline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// laneMarks are what stands for causes in a lane, in the order of the legend. Locks are large
// letters.
var laneMarks = [...]struct {
	mark byte
	of   string
}{
	{'#', cause.Running}, {'+', cause.Runnable}, {'*', cause.Throttled}, {'M', cause.Monitor}, {'L', cause.Lock},
	{'w', cause.Wait}, {'p', cause.Park},
	{'z', cause.Sleep}, {'s', cause.Socket}, {'o', cause.Poll}, {'i', cause.Pipe}, {'d', cause.Disk},
	{'g', cause.PageFault}, {'f', cause.Futex},
	{'!', cause.Safepoint}, {'v', cause.VM}, {'c', cause.VMCall}, {'h', cause.Process}, {'n', cause.Signal},
	{'F', cause.FileLock}, {'K', cause.KernelLock},
	{'t', cause.Terminal}, {'q', cause.IPC}, {'y', cause.Memory}, {'r', cause.Worker}, {'=', cause.Stopped},
	{'~', cause.Other}, {'?', cause.Unknown},
	{'.', cause.Idle},
}

// otherMark stands for a cause of another version of the agent.
const otherMark = '-'

// laneMarkOf is the place of a cause in laneMarks, or their number.
func laneMarkOf(what string) int {
	for i := range laneMarks {
		if laneMarks[i].of == what {
			return i
		}
	}
	return len(laneMarks)
}

const (
	// maxLaneName bounds the names of threads in front of their lanes.
	maxLaneName = 22
	// leastColumns and wideColumns are how many columns of time there are at least, and where lines
	// may have any length.
	leastColumns, wideColumns = 30, 200
	// laneTick is how far times on the axis are apart at least, in columns.
	laneTick = 10
)

// Write writes what each thread did over time: one lane for each, with a mark for each column of
// time. Lanes are by process and group of threads (stored.ThreadGroup), those with most time that
// is neither idle nor unknown first. Threads that had none are left out unless the options say
// Idle. N bounds the threads, PID chooses a process. Nil options are layout.DefaultOptions. It
// fails if the profile does not have the times of waits.
func Write(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	l, err := lanesOf(p, opts.PID)
	if err != nil {
		return err
	}
	t := timeline{storedLanes: l, opts: opts, out: bufio.NewWriter(w)}
	t.lay()
	t.write()
	return layout.Flush(t.out, "timeline")
}

// A timeline is the lanes of a profile as text.
type timeline struct {
	*storedLanes
	opts    *layout.Options
	out     *bufio.Writer
	columns int
	column  float64 // ns
	name    int     // columns of names
	groups  []*laneGroup
	threads int
	hidden  int // threads that had nothing to do
	used    [len(laneMarks) + 1]bool
	times   [][len(laneMarks) + 1]float64 // scratch, by column
}

// A laneGroup is threads of one process that do the same work.
type laneGroup struct {
	process, name string
	rows          []*laneRow
	busy          float64
}

// lay decides how wide everything is, and groups the threads.
func (t *timeline) lay() {
	const other = len("100% ") + len(" ")
	longest := len("thread")
	for i := range t.list {
		for j := range t.list[i].Threads {
			longest = max(longest, layout.Columns(t.list[i].Threads[j].Thread))
		}
	}
	t.name, t.columns = min(longest, maxLaneName), wideColumns
	if t.opts.Width > 0 {
		t.columns = max(t.opts.Width-t.name-other, leastColumns)
	}
	t.times = make([][len(laneMarks) + 1]float64, t.columns)
	t.column = float64(max(t.to.Sub(t.from), 1)) / float64(t.columns)
	type key struct{ process, group string }
	groups, processes := make(map[key]*laneGroup), make(map[string]float64)
	for _, row := range t.rows() {
		t.threads++
		if !t.opts.Idle && !row.hasWork() {
			t.hidden++
			continue
		}
		g := groups[key{row.process, row.group}]
		if g == nil {
			g = &laneGroup{process: row.process, name: row.group}
			groups[key{row.process, row.group}], t.groups = g, append(t.groups, g)
		}
		g.rows = append(g.rows, row)
		g.busy += row.busy
		processes[row.process] += row.busy
	}
	slices.SortFunc(t.groups, func(a, b *laneGroup) int {
		return cmp.Or(cmp.Compare(processes[b.process], processes[a.process]), cmp.Compare(a.process, b.process),
			cmp.Compare(b.busy, a.busy), cmp.Compare(a.name, b.name))
	})
	for _, g := range t.groups {
		slices.SortFunc(g.rows, func(a, b *laneRow) int {
			return cmp.Or(cmp.Compare(b.busy, a.busy), cmp.Compare(a.thread, b.thread), cmp.Compare(a.tid, b.tid))
		})
	}
}

// maxGroupLanes bounds the lanes of a group, unless all are shown.
const maxGroupLanes = 8

func (t *timeline) write() {
	length := t.to.Sub(t.from)
	layout.Fold(t.out, fmt.Sprintf("Threads over time, %v: %s; a column is %v", length.Round(time.Millisecond),
		stored.Plural(t.threads, "thread"),
		time.Duration(t.column).Round(100*time.Microsecond)), t.opts.Width)
	if t.hidden > 0 {
		layout.Fold(t.out, fmt.Sprintf("hidden: %s, idle or unknown for 98 %% of the time; --idle shows them",
			stored.Plural(t.hidden, "thread")), t.opts.Width)
	}
	if t.leftOut > 0 {
		layout.Fold(t.out, fmt.Sprintf("without a timeline: %s, because there were too many",
			stored.Plural(t.leftOut, "thread")), t.opts.Width)
	}
	if !t.noRoom.IsZero() {
		layout.Fold(t.out, fmt.Sprintf("from %v on lanes are missing: the file had no room for more than %d of them, "+
			"or %d MB. Record for a shorter time, fewer processes, or with a longer --window",
			t.noRoom.Sub(t.from).Round(time.Second), stored.MaxLaneCount, stored.MaxLaneText>>20), t.opts.Width)
	}
	t.out.WriteByte('\n')
	if len(t.groups) > 0 {
		fmt.Fprintf(t.out, "%-*s  run %s\n", t.name, "thread", t.axis(length))
	}
	shown, process, several := 0, "", false
	for _, g := range t.groups {
		several = several || g.process != t.groups[0].process
	}
	for _, g := range t.groups {
		if t.opts.N > 0 && shown >= t.opts.N {
			break
		}
		if several && g.process != process {
			process = g.process
			fmt.Fprintf(t.out, "%s\n", layout.KeepStart(process, t.opts.Width))
		}
		rows, more := g.rows, []*laneRow(nil)
		if t.opts.N > 0 {
			rows, more = layout.First(min(t.opts.N-shown, maxGroupLanes), g.rows)
		}
		for _, row := range rows {
			t.lane(row)
		}
		shown += len(rows)
		if len(more) > 0 {
			fmt.Fprintf(t.out, "%s\n", layout.KeepStart(fmt.Sprintf("  %d more of %s", len(more), g.name),
				t.opts.Width))
			shown += len(more)
		}
	}
	if more := t.threads - t.hidden - shown; more > 0 {
		fmt.Fprintf(t.out, "%s; -n 0 shows all\n", stored.Plural(more, "more thread"))
	}
	t.legend()
}

// lane writes one line.
func (t *timeline) lane(row *laneRow) {
	line := []byte(strings.Repeat(" ", t.columns))
	for i, mark := range t.draw(row, t.times) {
		if mark < 0 {
			continue
		}
		t.used[mark] = true
		line[i] = otherMark
		if mark < len(laneMarks) {
			line[i] = laneMarks[mark].mark
		}
	}
	name := layout.KeepEnd(row.thread, t.name)
	share := "-"
	if row.all > 0 {
		share = fmt.Sprintf("%.0f%%", 100*row.running/row.all)
	}
	fmt.Fprintf(t.out, "%s%s %4s %s\n", name, strings.Repeat(" ", max(t.name-layout.Columns(name), 0)), share,
		strings.TrimRight(string(line), " "))
}

// axis are times since the beginning, above the columns where they are.
func (t *timeline) axis(length time.Duration) string {
	step := time.Millisecond
	for i := 0; float64(step)/t.column < laneTick; i++ {
		step = time.Duration([...]int64{2, 5, 10}[i%3]*int64(math.Pow10(i/3))) * time.Millisecond
	}
	line := []byte(strings.Repeat(" ", t.columns))
	for at := time.Duration(0); at <= length; at += step {
		text := at.String()
		column := int(float64(at) / t.column)
		if column+len(text) > len(line) {
			break
		}
		copy(line[column:], text)
	}
	return strings.TrimRight(string(line), " ")
}

// legend explains the marks that were used.
func (t *timeline) legend() {
	var words []string
	for i, m := range laneMarks {
		if t.used[i] {
			words = append(words, fmt.Sprintf("%c %s", m.mark, m.of))
		}
	}
	if t.used[len(laneMarks)] {
		words = append(words, string(otherMark)+" a cause that this version does not know")
	}
	if len(words) > 0 {
		t.out.WriteByte('\n')
		layout.Fold(t.out, "marks (what fills most of a column): "+strings.Join(words, ", ")+
			"; run: share of the time on a CPU", t.opts.Width)
	}
}
