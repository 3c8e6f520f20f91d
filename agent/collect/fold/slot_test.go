package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// rates are the rates that were set, by slot.
type rates map[uint32]bpf.ChainRate

func (r rates) Put(key, value any) error {
	r[key.(uint32)] = value.(bpf.ChainRate)
	return nil
}

// The slot of a VM that has ended may have been given to another VM: no rate is set in it for the
// earlier one.
func TestFreedSlot(t *testing.T) {
	o, _ := chainOwner(1 << 20)
	p := feed(t, o, "0:1@16 1:2@32 2:3@48", 0, 1)
	set := rates{}
	o.Do(func(s *State) {
		s.joiner.opt.Rates = set
		p.Slot.Store(guest.NoSlot)
		purge(s, p)
		p.Chaining = nil // its chaining starts anew
		s.joiner.Chaining(p)
	})
	if len(set) != 0 {
		t.Errorf("set %v", set)
	}
}

// A process found in /proc is distinguished from the one that had its pid before.
func TestFindOtherStart(t *testing.T) {
	o, _ := chainOwner(1 << 20)
	o.Do(func(s *State) {
		before := s.Process(&bpf.Header{Pid: 9, Start: 5_000_000_123, Exec: 1})
		if p := s.Find(proc.Identity{PID: 9, Start: 5_000_000_000}); p != before {
			t.Error("a process is taken for another one")
		}
		p := s.Find(proc.Identity{PID: 9, Start: 7_000_000_000})
		if p == before || !before.Exited.Load() || s.Table[9] != p {
			t.Error("a process is taken for the one that had its pid before")
		}
		if s.Submit(); s.Table[9] != p {
			t.Error("the new process is forgotten with the old one")
		}
	})
}

// The identity by which engines know a busy process stays the same when the kernel side reports its
// start more precisely.
func TestBusyIdentity(t *testing.T) {
	o, _ := chainOwner(1 << 20)
	o.Do(func(s *State) {
		p := s.Find(proc.Identity{PID: 9, Start: 5_000_000_000})
		p.Attachment.Store(1)
		p.Top.Edges = map[TopEdge]float64{{}: 1}
		before := s.Busiest(1, 0, 1)[0].Identity()
		s.Process(&bpf.Header{Pid: 9, Start: 5_000_000_123, Exec: 4})
		if after := s.Busiest(1, 0, 1)[0].Identity(); before != after || !p.Precise {
			t.Errorf("%v, then %v", before, after)
		}
	})
}
