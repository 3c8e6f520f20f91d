package top

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
)

// A chooser is an agent that samples chosen processes.
type chooser interface{ Choose(pid int) error }

// A follower knows the processes that -p selects while top runs: also those that start later and
// have the name, and which have ended.
type follower struct {
	targets targets.Flag
	root    proc.Root
	names   map[int]string // what each process of the machine called itself at the last look; for one goroutine

	mu      sync.Mutex
	running []proc.Identity // chosen processes
	agents  []chooser
}

// newFollower returns a follower for which all processes of now are old. It is made before the
// targets are looked for, so that none is missed.
func newFollower(t targets.Flag, root proc.Root) (*follower, error) {
	f := &follower{targets: t, root: root, names: make(map[int]string)}
	if f.byName() {
		if _, err := f.renamed(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// byName reports whether -p has a name or a pattern.
func (f *follower) byName() bool { return slices.ContainsFunc(f.targets.Words, isName) }

func isName(word string) bool {
	_, err := strconv.Atoi(word)
	return err != nil
}

// renamed returns the processes that started, or began to run another program, since the last look.
func (f *follower) renamed() (pids []int, err error) {
	all, err := f.root.PIDs()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(all))
	for _, pid := range all {
		name, err := f.root.Comm(pid)
		if err != nil {
			continue
		}
		if before, known := f.names[pid]; !known || before != name {
			pids = append(pids, pid)
		}
		names[pid] = name
	}
	f.names = names
	return pids, nil
}

// choose adds processes that the agents are to sample.
func (f *follower) choose(pids ...int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range pids {
		id, err := f.root.Identify(pid)
		if err != nil || slices.Contains(f.running, id) {
			continue // it has ended, or is known
		}
		f.running = append(f.running, id)
		for _, a := range f.agents {
			if err := a.Choose(pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// pids are the chosen processes that ran at the last look.
func (f *follower) pids() (pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range f.running {
		pids = append(pids, id.PID)
	}
	return pids
}

// join has an agent sample the chosen processes, those of now and later ones. leave ends that.
func (f *follower) join(a chooser) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents = append(f.agents, a)
	leave = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.agents = slices.DeleteFunc(f.agents, func(other chooser) bool { return other == a })
	}
	if len(f.targets.Words) == 0 {
		return leave, nil
	}
	for _, id := range f.running {
		if err := a.Choose(id.PID); err != nil {
			return leave, err
		}
	}
	return leave, nil
}

// look chooses the processes that came since the last look, and returns what there is to say of
// these and of those that have ended; "" for nothing.
func (f *follower) look(ctx context.Context) (news string, err error) {
	if len(f.targets.Words) == 0 {
		return "", nil
	}
	if f.byName() {
		pids, err := f.renamed()
		if err != nil {
			return "", err
		}
		var found []targets.Candidate
		for _, c := range targets.Inquire(ctx, f.root, pids) {
			if slices.ContainsFunc(f.targets.Words, func(word string) bool { return isName(word) && c.Matches(word) }) {
				found = append(found, c)
			}
		}
		for _, c := range found {
			if err := f.choose(c.PID); err != nil {
				return "", err
			}
		}
		if len(found) > 0 {
			news = "started: " + strings.TrimSpace(found[0].String())
			if len(found) > 1 {
				news = stored.Plural(len(found), "process") + " started: " + targets.List(found)
			}
		}
	}
	if f.ended() && news == "" {
		news = f.gone()
	}
	return news, nil
}

// ended forgets processes that have ended, and reports whether the last one has.
func (f *follower) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.running)
	f.running = slices.DeleteFunc(f.running, func(id proc.Identity) bool {
		st, err := f.root.Stat(id.PID)
		return err != nil || st.Zombie() || f.root.Check(id) != nil
	})
	return before > 0 && len(f.running) == 0
}

// gone says that no chosen process runs any more.
func (f *follower) gone() string {
	if !f.byName() {
		if len(f.targets.Words) == 1 {
			return fmt.Sprintf("process %s has ended", f.targets.Words[0])
		}
		return "all processes of -p have ended"
	}
	return fmt.Sprintf("no process of -p %s runs any more; a later one will be shown", f.targets.String())
}
