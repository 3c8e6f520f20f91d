package page

import (
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

const (
	// minReconnect is how long a process must wait before it connects again: greeting it takes the
	// agent about 20 ms.
	minReconnect = 500 * time.Millisecond
	// keepGone is how long calls of a disconnected process can still be resolved.
	keepGone = 10 * time.Second
	maxGone  = 64
)

// A table is the processes that are connected, and those that disconnected recently.
type table struct {
	mu      sync.Mutex
	serial  uint32
	present map[uint32]*guest // by serial
	byPID   map[int]*guest    // those of present
	gone    []gone            // oldest first
	recent  map[proc.Identity]time.Time
	users   map[uint32]int // connections by user
}

type gone struct {
	*guest
	since time.Time
}

func newTable() *table {
	return &table{present: map[uint32]*guest{}, byPID: map[int]*guest{}, recent: map[proc.Identity]time.Time{},
		users: map[uint32]int{}}
}

// enter counts a connection of a user, unless it has too many.
func (t *table) enter(uid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users[uid] >= maxOfUser {
		return false
	}
	t.users[uid]++
	return true
}

func (t *table) leave(uid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users[uid]--; t.users[uid] == 0 {
		delete(t.users, uid)
	}
}

// reserve gives g its place and its serial.
func (t *table) reserve(g *guest) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.byPID[g.peer.id.PID] != nil {
		return refusedConnected
	}
	if len(t.present) >= bpf.MaxPageGuests {
		return refusedFull
	}
	for id, at := range t.recent {
		if now.Sub(at) >= minReconnect {
			delete(t.recent, id)
		}
	}
	if _, again := t.recent[g.peer.id]; again || len(t.recent) >= bpf.MaxPageGuests {
		return refusedOften
	}
	t.recent[g.peer.id] = now
	if t.serial++; t.serial == 0 {
		t.serial = 1
	}
	g.serial = t.serial
	t.present[g.serial], t.byPID[g.peer.id.PID] = g, g
	return nil
}

// release takes g out. Its calls can be resolved for some more time.
func (t *table) release(g *guest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.present, g.serial)
	delete(t.byPID, g.peer.id.PID)
	now := time.Now()
	t.gone = append(t.gone, gone{g, now})
	for len(t.gone) > maxGone || now.Sub(t.gone[0].since) > keepGone {
		t.gone = t.gone[1:]
	}
}

// find returns the guest with that serial, nil if it is no longer known.
func (t *table) find(serial uint32) *guest {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.present[serial]; g != nil {
		return g
	}
	for _, g := range t.gone {
		if g.serial == serial {
			return g.guest
		}
	}
	return nil
}

// connected reports whether the guest with that serial is connected.
func (t *table) connected(serial uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.present[serial] != nil
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.present)
}

// each calls f for every guest that is connected.
func (t *table) each(f func(*guest)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.present {
		f(g)
	}
}
