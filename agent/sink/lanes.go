package sink

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// threadLanes collect what threads did over time, of all windows.
type threadLanes struct {
	list []stored.Lanes
	size int // of their text
}

// add adds the lanes of a process in a window.
func (t *threadLanes) add(proc *profile.Process, e *profile.Events, start time.Time, window int64) {
	if e.Lanes == nil {
		return
	}
	lanes, size := stored.NewLanes(proc, e.Lanes, start, window, stored.MaxLaneText-t.size)
	t.list, t.size = append(t.list, lanes), t.size+size
}
