package sink

import (
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// processNotes are what readers of a profile must know about its processes, each note once with those it is about.
// Processes of one name often share a note: forty JVMs without debug information are one line.
type processNotes struct {
	order []noteSubject
	pids  map[noteSubject][]int
	known map[processNote]bool
}

type noteSubject struct{ comm, note string }

type processNote struct {
	noteSubject
	pid int
}

func (n *processNotes) add(proc *profile.Process, notes []string) {
	if n.pids == nil {
		n.pids, n.known = make(map[noteSubject][]int), make(map[processNote]bool)
	}
	for _, note := range notes {
		s := noteSubject{proc.Comm, note}
		if n.known[processNote{s, proc.PID}] {
			continue
		}
		n.known[processNote{s, proc.PID}] = true
		if n.pids[s] == nil {
			n.order = append(n.order, s)
		}
		n.pids[s] = append(n.pids[s], proc.PID)
	}
}

// lines are the comments: one for each note.
func (n *processNotes) lines() []string {
	const listed = 5
	var lines []string
	for _, s := range n.order {
		var list []string
		for _, pid := range n.pids[s] {
			if len(list) == listed {
				list = append(list, fmt.Sprintf("%d more", len(n.pids[s])-listed))
				break
			}
			list = append(list, fmt.Sprint(pid))
		}
		lines = append(lines, fmt.Sprintf("%s (pid %s): %s", printable(s.comm), strings.Join(list, ", "), printable(s.note)))
	}
	return lines
}
