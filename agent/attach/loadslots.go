package attach

import "github.com/vmprof-agent/vmprof-agent/bpf"

// loadSlots are the places of the kernel side's table of load sites. Sites whose arguments are at the same places share
// one: so many containers with the same library need no more than one of them does.
type loadSlots struct {
	used map[bpf.LoadSite]*loadSlot
	free []uint32
}

type loadSlot struct {
	number uint32
	users  int
}

func newLoadSlots(n uint32) loadSlots {
	s := loadSlots{used: map[bpf.LoadSite]*loadSlot{}}
	for i := n; i > 0; i-- {
		s.free = append(s.free, i-1)
	}
	return s
}

// take returns the slot of a site; fresh says that it has to be written. It is not ok if all are in use.
func (s *loadSlots) take(site bpf.LoadSite) (number uint32, fresh, ok bool) {
	if slot := s.used[site]; slot != nil {
		slot.users++
		return slot.number, false, true
	}
	last := len(s.free) - 1
	if last < 0 {
		return 0, false, false
	}
	number, s.free = s.free[last], s.free[:last]
	s.used[site] = &loadSlot{number: number, users: 1}
	return number, true, true
}

// give gives back what one take took.
func (s *loadSlots) give(site bpf.LoadSite) {
	slot := s.used[site]
	if slot.users--; slot.users == 0 {
		delete(s.used, site)
		s.free = append(s.free, slot.number)
	}
}
