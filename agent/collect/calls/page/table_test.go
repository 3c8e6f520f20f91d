package page

import (
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func somebody(pid int, start uint64) *guest {
	return &guest{peer: &peer{id: proc.Identity{PID: pid, Start: start}}}
}

func TestTable(t *testing.T) {
	table := newTable()
	a := somebody(1, 100)
	if err := table.reserve(a); err != nil || a.serial == 0 {
		t.Fatalf("serial %d, %v", a.serial, err)
	}
	if err := table.reserve(somebody(1, 100)); !errors.Is(err, refusedConnected) {
		t.Errorf("a second connection: %v", err)
	}
	if table.find(a.serial) != a || table.find(a.serial+1) != nil || table.find(0) != nil {
		t.Error("guests are not found by their serials")
	}
	table.release(a)
	if table.connected(a.serial) || table.find(a.serial) != a {
		t.Error("who has just gone is not connected, but known")
	}
	if err := table.reserve(somebody(1, 100)); !errors.Is(err, refusedOften) {
		t.Errorf("back at once: %v", err)
	}
	// A process that has reused the pid is another guest.
	b := somebody(1, 5e9)
	if err := table.reserve(b); err != nil || b.serial == a.serial {
		t.Errorf("serial %d, %v", b.serial, err)
	}
	if table.find(a.serial) != a {
		t.Error("calls of the first one are resolved by the second one")
	}
}

func TestTableBounds(t *testing.T) {
	table := newTable()
	for pid := range bpf.MaxPageGuests {
		if err := table.reserve(somebody(pid+1, 1)); err != nil {
			t.Fatal(err)
		}
		clear(table.recent)
	}
	if err := table.reserve(somebody(1000, 1)); !errors.Is(err, refusedFull) {
		t.Errorf("one more: %v", err)
	}
	var all []*guest
	table.each(func(g *guest) { all = append(all, g) })
	for _, g := range all {
		table.release(g)
	}
	if table.len() != 0 || len(table.gone) != maxGone {
		t.Errorf("%d are there and %d are kept, want 0 and %d", table.len(), len(table.gone), maxGone)
	}
	for range maxOfUser {
		if !table.enter(7) {
			t.Fatal("too few connections of a user")
		}
	}
	if table.enter(7) || !table.enter(8) {
		t.Error("a user may have as many connections as it likes, or keeps others out")
	}
	table.leave(7)
	if !table.enter(7) {
		t.Error("a connection that ended still counts")
	}
}
