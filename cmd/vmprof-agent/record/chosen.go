package record

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// chosen are the processes that -p selected, from before the agent attached: a pid may mean another
// process later. Of the whole machine, and of COMMAND, it is empty. agent.New refuses pids that no
// process has.
type chosen struct {
	root      proc.Root
	processes []proc.Identity
	ended     bool // all of them, and with them the recording
}

// chosenProcesses identifies processes by their pids.
func chosenProcesses(pids []int) chosen {
	c := chosen{root: proc.DefaultRoot}
	for _, pid := range pids {
		if id, err := c.root.Identify(pid); err == nil {
			c.processes = append(c.processes, id)
		}
	}
	return c
}

// running are those of some processes that have not ended. A zombie has.
func (c *chosen) running(of []proc.Identity) (still []proc.Identity) {
	for _, id := range of {
		if st, err := c.root.Stat(id.PID); err == nil && !st.Zombie() && c.root.Check(id) == nil {
			still = append(still, id)
		}
	}
	return still
}

// checkRunning fails if all of the processes have ended: a recording of nothing would replace the
// file of an earlier one. It warns of those that have ended if others run.
func (c *chosen) checkRunning(log *slog.Logger) error {
	still := c.running(c.processes)
	if len(c.processes) > 0 && len(still) == 0 {
		return c.endedBefore()
	}
	for _, id := range c.processes {
		if !slices.Contains(still, id) {
			log.Warn("process ended before recording began", "pid", id.PID)
		}
	}
	return nil
}

// endedBefore is the error for processes that have all ended.
func (c *chosen) endedBefore() error {
	const most = 5 // that are named
	var pids []string
	for _, id := range c.processes {
		pids = append(pids, strconv.Itoa(id.PID))
	}
	what := "process " + pids[0]
	switch {
	case len(pids) > most:
		what = fmt.Sprintf("%d processes", len(pids))
	case len(pids) > 1:
		what = "processes " + strings.Join(pids, ", ")
	}
	return fmt.Errorf("%s ended before recording began; no file was written. To profile a short run, start it with "+
		"record -- COMMAND", what)
}

const (
	// goneInterval is between two looks at whether processes run of which the kernel does not
	// report the end.
	goneInterval = 100 * time.Millisecond
	// unseenEnd is how long a recording without any sample may seem to last after its processes had
	// ended before it.
	unseenEnd = 2 * goneInterval
)

// waitGone returns true when none of the processes runs any more, false when ctx ended first.
func (c *chosen) waitGone(ctx context.Context) bool {
	ended := make(chan struct{}, 1)
	unreported := false
	for _, id := range c.processes {
		process, err := openEnd(id.PID)
		if err != nil {
			unreported = true
			continue
		}
		defer process.Close()
		go func() {
			if waitEnd(process) == nil {
				select {
				case ended <- struct{}{}:
				default: // somebody looks anyway
				}
			}
		}()
	}
	for alive := c.processes; ; {
		if alive = c.running(alive); len(alive) == 0 {
			return true
		}
		var again <-chan time.Time
		if unreported {
			again = time.After(goneInterval)
		}
		select {
		case <-ctx.Done():
			return false
		case <-ended:
		case <-again:
		}
	}
}

// openEnd opens a pidfd, which can be read once the process has ended.
func openEnd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // the runtime waits for it without a thread
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// waitEnd returns nil when the process has ended, and an error if the file is closed before.
func waitEnd(process *os.File) error {
	conn, err := process.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
}

// recorded reports whether a profile has anything: samples, calls or events.
func recorded(p *profile.Profile) bool {
	return p.Counts.Folded > 0 || slices.ContainsFunc(p.Processes, func(p *profile.Process) bool {
		return len(p.Threads) > 0 || len(p.Calls) > 0 || slices.ContainsFunc(p.Events,
			func(e *profile.Events) bool { return len(e.Rows) > 0 })
	})
}

// nameCommand names the process of COMMAND by its arguments if it ended before anybody could ask
// it.
func nameCommand(p *profile.Profile, pid int, command []string) {
	for _, process := range p.Processes {
		if process.PID != pid {
			continue
		}
		if process.Comm == "" {
			process.Comm = stored.Printable(filepath.Base(command[0]))
		}
		if process.Service == "" || stored.IsUnnamed(process.Service) {
			names := proc.ApplicationNames(&proc.Launch{Executable: command[0], Arguments: command})
			process.Service = append(names, process.Comm)[0]
		}
	}
}
