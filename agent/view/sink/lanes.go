package sink

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// threadLanes collect what threads did over time, of all windows.
type threadLanes struct {
	list []stored.Lanes
	room *stored.LaneRoom // nil until there is one
}

// add adds the lanes of a process in a window.
func (t *threadLanes) add(proc *profile.Process, e *profile.Events, start time.Time, window int64) {
	if e.Lanes == nil {
		return
	}
	if t.room == nil {
		t.room = &stored.LaneRoom{Lanes: stored.MaxLaneCount, Text: stored.MaxLaneText}
	}
	if len(t.list) >= stored.MaxLaneList {
		t.list[len(t.list)-1].NoRoom += len(e.Lanes.Threads)
		return
	}
	t.list = append(t.list, stored.NewLanes(proc, e.Lanes, start, window, t.room))
}
