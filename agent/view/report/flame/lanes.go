package flame

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

const (
	// maxShownLanes bounds the text of lanes in the JSON form, bytes: the last windows are shown.
	maxShownLanes = 1 << 20
	// maxKeptLanes bounds it in a window that is kept: the busiest threads.
	maxKeptLanes = 128 << 10
	// laneOverhead is about what a lane takes without its text.
	laneOverhead = 60
)

// readLanes adds what threads did over time.
func (f *Graph) readLanes(p *pprof.Profile) {
	if m, err := stored.MetadataOf(p); err == nil {
		f.lanes = m.Lanes
	}
}

// laneService is the service that lanes are of, as Process has it.
func laneService(l *stored.Lanes) string {
	return cmp.Or(l.Service, l.Comm, stored.Unnamed)
}

// laneProcess names a process.
func laneProcess(service string, pid int64) string {
	return fmt.Sprintf("%s (pid %d)", strings.TrimSuffix(service, ".service"), pid)
}

// keptLanes are lanes of so much text: those of the first threads, which are the busiest.
func keptLanes(list []stored.Lanes, most int) []stored.Lanes {
	out := slices.Clone(list)
	for i := range out {
		l := &out[i]
		for j, t := range l.Threads {
			if most -= len(t.Runs); most < 0 {
				l.LeftOut += len(l.Threads) - j
				l.Threads = slices.Clone(l.Threads[:j])
				break
			}
		}
	}
	return out
}

// The lanes of one process in one window.
type flameLanes struct {
	PID     int64    `json:"pid"`
	Process string   `json:"process"`
	Start   float64  `json:"start"` // ms since 1970
	Step    float64  `json:"step"`  // ms
	Steps   int      `json:"steps"`
	Causes  []string `json:"causes"`
	LeftOut int      `json:"leftOut,omitempty"` // threads
	NoRoom  int      `json:"noRoom,omitempty"`  // threads
	TID     []int64  `json:"tid"`
	Thread  []string `json:"thread"`
	Group   []string `json:"group"`
	From    []int    `json:"from"` // the first step of each
	Runs    []string `json:"runs"` // see docs/reference/http.md
}

// shownLanes are those of the last windows, as many as there is room for; nil if there are none.
func (f *Graph) shownLanes() (list []flameLanes) {
	sorted := stored.JoinLanes(f.lanes)
	slices.Reverse(sorted) // the last first
	room, last := maxShownLanes, time.Time{}
	for _, l := range sorted {
		if room < 0 && !l.Start.Equal(last) { // no part of a window
			break
		}
		last = l.Start
		room -= laneOverhead
		out := flameLanes{PID: l.PID, Process: laneProcess(laneService(&l), l.PID),
			Start: float64(l.Start.UnixMicro()) / 1000, Step: float64(l.Step) / float64(time.Millisecond),
			Steps: l.Steps, Causes: l.Causes, LeftOut: l.LeftOut, NoRoom: l.NoRoom,
			TID: []int64{}, Thread: []string{}, Group: []string{}, From: []int{}, Runs: []string{}}
		for _, t := range l.Threads {
			room -= len(t.Runs) + laneOverhead
			thread := cmp.Or(t.Thread, stored.Unnamed)
			out.TID, out.Thread, out.Group = append(out.TID, t.TID), append(out.Thread, thread),
				append(out.Group, stored.ThreadGroup(thread))
			out.From, out.Runs = append(out.From, t.From), append(out.Runs, t.Runs)
		}
		list = append(list, out)
	}
	slices.Reverse(list)
	return list
}
