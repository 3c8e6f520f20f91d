package proc

import "strings"

// An Owner is who answers for a process: a user in a cgroup. A container that runs as root has another cgroup than the next.
type Owner struct {
	UID    uint32
	Cgroup string // path in the unified hierarchy, or all of /proc/PID/cgroup where there is none
}

// unknown reports whether o is of a process that is gone. All of these share a budget of their own, which is no user's.
func (o Owner) unknown() bool { return o == Owner{} || o == gone }

// gone is the owner of processes that have ended: the UID is the kernel's INVALID_UID (include/linux/uidgid.h).
var gone = Owner{UID: ^uint32(0)}

// Owner returns whose process pid is. A process that is gone has the UID 1<<32 - 1, which is no user's. No target can delay this.
func (r Root) Owner(pid int) Owner {
	s, err := r.Status(pid)
	if err != nil {
		return gone
	}
	o := Owner{UID: s.UID}
	if b, err := r.Cgroup(pid); err == nil {
		o.Cgroup = strings.TrimSpace(string(b))
		for line := range strings.Lines(o.Cgroup) {
			if path, ok := strings.CutPrefix(line, "0::"); ok {
				o.Cgroup = strings.TrimSpace(path)
			}
		}
	}
	return o
}

// stuckCalls counts abandoned calls that have not returned.
type stuckCalls struct {
	owners map[Owner]*[2]int
	users  map[uint32]*[2]int
}

func newStuckCalls() stuckCalls {
	return stuckCalls{map[Owner]*[2]int{}, map[uint32]*[2]int{}}
}

// class is what shares a budget: reads of memory, or all else. Who hangs one does not take the other from his neighbours.
func (k kind) class() int {
	if k == general {
		return 0
	}
	return 1
}

func (s stuckCalls) of(o Owner, k kind) int {
	if n := s.owners[o]; n != nil {
		return n[k.class()]
	}
	return 0
}

func (s stuckCalls) ofUser(uid uint32, k kind) int {
	if n := s.users[uid]; n != nil {
		return n[k.class()]
	}
	return 0
}

// add counts n more calls of an owner.
func (s stuckCalls) add(o Owner, k kind, n int) {
	count(s.owners, o, k, n)
	count(s.users, o.UID, k, n)
}

func count[K comparable](counts map[K]*[2]int, key K, k kind, n int) {
	c := counts[key]
	if c == nil {
		c = new([2]int)
		counts[key] = c
	}
	if c[k.class()] += n; *c == [2]int{} {
		delete(counts, key)
	}
}
