package watch

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// entriesTo are the addresses 1 to n.
func entriesTo(n uint64) (e []uint64) {
	for a := range n {
		e = append(e, a+1)
	}
	return e
}

func TestRotation(t *testing.T) {
	for _, hot := range [][]uint64{entriesTo(1), entriesTo(2), entriesTo(3), entriesTo(4), entriesTo(7),
		entriesTo(64)} {
		var r Rotation[uint64]
		turns := map[uint64]int{}
		windows := 20 * len(hot)
		for range windows {
			turn := r.Next(hot, MaxAddresses)
			if len(turn) != min(MaxAddresses, len(hot)) {
				t.Fatalf("%d entries of %d", len(turn), len(hot))
			}
			for i, e := range turn {
				if slices.Contains(turn[:i], e) {
					t.Fatalf("%d entries: twice in a window: %v", len(hot), turn)
				}
				turns[e]++
			}
			if len(r.left) > len(hot)+MaxAddresses {
				t.Fatalf("%d entries: %d left", len(hot), len(r.left))
			}
		}
		for _, e := range hot {
			// Every entry has had as many turns as any other, but for the round that is on.
			if want := windows * min(MaxAddresses, len(hot)) / len(hot); turns[e] < want-1 || turns[e] > want+1 {
				t.Errorf("%d entries: %v had %d turns, want %d", len(hot), e, turns[e], want)
			}
		}
	}
}

// What is not hot any more is not listened to, what is new soon is.
func TestRotationFollows(t *testing.T) {
	var r Rotation[uint64]
	r.Next(entriesTo(8), MaxAddresses)
	hot := entriesTo(12)[6:]
	seen := map[uint64]bool{}
	for range 5 {
		for _, e := range r.Next(hot, MaxAddresses) {
			if !slices.Contains(hot, e) {
				t.Errorf("%v is not hot", e)
			}
			seen[e] = true
		}
	}
	if len(seen) != len(hot) {
		t.Errorf("%d of %d hot entries had a turn", len(seen), len(hot))
	}
	if got := r.Next(nil, MaxAddresses); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestRotationsAreBounded(t *testing.T) {
	rs := Rotations[proc.Identity, uint64]{}
	for pid := range 3 * maxRotations {
		rs.Get(proc.Identity{PID: pid})
	}
	if len(rs) > maxRotations {
		t.Errorf("%d orders", len(rs))
	}
	r := rs.Get(proc.Identity{PID: 1 << 20})
	if rs.Get(proc.Identity{PID: 1 << 20}) != r {
		t.Error("a guest has two orders")
	}
}
