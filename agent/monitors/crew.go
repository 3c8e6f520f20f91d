package monitors

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// Bounds on what is known of the threads of a guest.
const (
	maxThreads = 4096 // looked at, some 10 us each
	maxGroups  = 64   // others are one group
)

// A crew are the threads of a guest, in groups that do the same work, as far as their names tell: those of a pool differ
// in a number.
type crew struct {
	used    map[int]uint64      // ns of CPU by thread, when they were read last
	lately  map[int]uint64      // ns between the last two readings, of those that ran
	groupOf map[int]string      // of those that ran
	groups  map[string]*history // by name
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

// refresh reads how long all threads ran. A process that is gone keeps what was read before.
func (c *crew) refresh(root proc.Root, id proc.Identity, now time.Duration) error {
	tids, err := root.Threads(id.PID)
	if err != nil {
		return err
	}
	if err := root.Check(id); err != nil {
		return err
	}
	c.update(now, tids[:min(len(tids), maxThreads)], func(tid int) (uint64, error) { return root.ThreadCPUTime(id.PID, tid) },
		func(tid int) string {
			name, _ := root.ThreadComm(id.PID, tid) // "" if it has ended
			return name
		})
	return nil
}

// update takes over what was read.
func (c *crew) update(now time.Duration, tids []int, cpuTime func(int) (uint64, error), name func(int) string) {
	before := c.used
	c.used, c.lately = make(map[int]uint64, len(tids)), map[int]uint64{}
	if c.groups == nil {
		c.groups, c.groupOf = map[string]*history{}, map[int]string{}
	}
	did := map[string]uint64{}
	for _, tid := range tids {
		ns, err := cpuTime(tid)
		if err != nil {
			continue // it ended
		}
		c.used[tid] = ns
		delta := ns - min(before[tid], ns) // a thread id that is used again begins from 0
		if delta == 0 {
			continue
		}
		c.lately[tid] = delta
		group := groupName(name(tid))
		if c.groups[group] == nil && len(c.groups) >= maxGroups {
			group = otherThreads
		}
		c.groupOf[tid] = group
		did[group] += delta
	}
	maps.DeleteFunc(c.groupOf, func(tid int, _ string) bool { _, there := c.used[tid]; return !there })
	for group := range did {
		if c.groups[group] == nil {
			c.groups[group] = &history{}
		}
	}
	for group, h := range c.groups {
		h.add(now, time.Duration(did[group]))
	}
}

// busiest returns the n threads that ran most lately.
func (c *crew) busiest(n int) []int {
	tids := slices.SortedFunc(maps.Keys(c.lately), func(a, b int) int {
		return cmp.Or(cmp.Compare(c.lately[b], c.lately[a]), cmp.Compare(a, b))
	})
	return tids[:min(n, len(tids))]
}

// draw chooses a thread by lot, of those whose group wanted takes: the more it ran lately, the likelier. False if none did.
func (c *crew) draw(wanted func(group string) bool) (tid int, ok bool) {
	all := c.busiest(len(c.lately))
	all = slices.DeleteFunc(all, func(tid int) bool { return !wanted(c.groupOf[tid]) })
	var sum uint64
	for _, tid := range all {
		sum += c.lately[tid]
	}
	if sum == 0 {
		return 0, false
	}
	lot := rand.Uint64N(sum)
	for _, tid := range all {
		if lot < c.lately[tid] {
			return tid, true
		}
		lot -= c.lately[tid]
	}
	return 0, false
}
