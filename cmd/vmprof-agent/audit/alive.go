package audit

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// lookPause is the time between two looks at whether processes are alive.
const lookPause = time.Second

// A living follows whether some processes run, are stopped or have ended. Its methods are for one
// goroutine.
type living struct {
	root      proc.Root
	log       *slog.Logger
	processes []livingProcess
	began     time.Time
	looked    time.Time
}

type livingProcess struct {
	proc.Identity
	stopped time.Duration // since the first look
	now     bool          // it is stopped
	ended   bool
}

// follow begins to follow those of the processes that exist.
func follow(root proc.Root, pids []int, log *slog.Logger) *living {
	l := &living{root: root, log: log, began: time.Now(), looked: time.Now()}
	for _, pid := range pids {
		if id, err := root.Identify(pid); err == nil {
			l.processes = append(l.processes, livingProcess{Identity: id})
		}
	}
	return l
}

// look looks at the processes, and logs once for each time that one is stopped. It returns false if
// one has ended.
func (l *living) look() (all bool) {
	all = true
	now := time.Now()
	passed := now.Sub(l.looked)
	l.looked = now
	for i := range l.processes {
		p := &l.processes[i]
		stat, err := l.root.Stat(p.PID)
		if err == nil && stat.Zombie() || errors.Is(err, proc.ErrGone) ||
			errors.Is(l.root.Check(p.Identity), proc.ErrGone) {
			p.ended, all = true, false
			continue
		}
		stopped := err == nil && (stat.State == 'T' || stat.State == 't')
		if stopped && p.now {
			p.stopped += passed
		}
		if stopped && !p.now {
			p.stopped += passed / 2 // somewhere between the looks
			l.log.Warn("process is stopped: nothing can be timed in it until it continues (kill -CONT)", "pid", p.PID)
		}
		p.now = stopped
	}
	return all
}

// notes say which processes have ended or were stopped.
func (l *living) notes() (notes []string) {
	for i := range l.processes {
		p := &l.processes[i]
		if p.stopped > 0 {
			notes = append(notes, fmt.Sprintf("process %d was stopped (SIGSTOP, or by a debugger) for about %v of "+
				"%v: nothing was timed in it then",
				p.PID, p.stopped.Round(time.Second), l.looked.Sub(l.began).Round(time.Second)))
		}
		if p.ended {
			notes = append(notes, fmt.Sprintf("process %d ended after %v, and the audit with it: all timings are "+
				"from before", p.PID, l.looked.Sub(l.began).Round(time.Second)))
		}
	}
	return notes
}
