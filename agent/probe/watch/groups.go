package watch

import (
	"maps"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// maxGroups bounds the thread groups of a process; others are one.
const maxGroups = 64

// Groups are the threads of a process in groups that do the same work, as far as their names show:
// those of a pool differ in a number. The zero value is of none.
type Groups struct {
	Threads
	groupOf map[int]string      // groups of threads that ran
	groups  map[string]*History // by name
}

// groupName is a thread's name without digits.
func groupName(comm string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, comm)
}

const otherThreads = "(other threads)"

// Refresh reads how long all threads ran until now, CLOCK_MONOTONIC. A process that is gone keeps
// what was read before.
func (g *Groups) Refresh(root proc.Root, id proc.Identity, now time.Duration) error {
	if err := g.refresh(root, id); err != nil {
		return err
	}
	g.sort(now, func(tid int) string {
		name, _ := root.ThreadComm(id.PID, tid) // "" if it has ended
		return name
	})
	return nil
}

// Update is Refresh with what was read: threads, their CPU times in ns, their names.
func (g *Groups) Update(now time.Duration, tids []int, cpuTime func(int) (uint64, error), name func(int) string) {
	g.update(tids, cpuTime)
	g.sort(now, name)
}

// sort adds what the threads ran lately to their groups.
func (g *Groups) sort(now time.Duration, name func(int) string) {
	if g.groups == nil {
		g.groups, g.groupOf = map[string]*History{}, map[int]string{}
	}
	did := map[string]uint64{}
	for tid, ns := range g.lately {
		group := groupName(name(tid))
		if g.groups[group] == nil && len(g.groups) >= maxGroups {
			group = otherThreads
		}
		if g.groups[group] == nil {
			g.groups[group] = &History{}
		}
		g.groupOf[tid] = group
		did[group] += ns
	}
	maps.DeleteFunc(g.groupOf, func(tid int, _ string) bool { _, there := g.used[tid]; return !there })
	for group, h := range g.groups {
		h.Add(now, time.Duration(did[group]))
	}
}

// Lookup returns the group of a thread; false if it never ran or has ended.
func (g *Groups) Lookup(tid int) (group string, known bool) {
	group, known = g.groupOf[tid]
	return group, known
}

// History is that of a group; nil if there is no such.
func (g *Groups) History(group string) *History { return g.groups[group] }

// Used is the CPU time of all groups since the first reading of each.
func (g *Groups) Used() (sum time.Duration) {
	for _, h := range g.groups {
		sum += h.since()
	}
	return sum
}

// DrawOf chooses one of the threads whose group is wanted at random: the more it ran lately, the
// likelier. False if none did.
func (g *Groups) DrawOf(wanted func(group string) bool) (tid int, ok bool) {
	return g.Draw(func(tid int) bool { return wanted(g.groupOf[tid]) })
}
