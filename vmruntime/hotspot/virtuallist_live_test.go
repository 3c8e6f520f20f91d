package hotspot

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// TestLiveVirtualThreads has virtual threads, of an executor and others, wait for a lock. Those
// that are drawn stand for all.
func TestLiveVirtualThreads(t *testing.T) {
	tried := false
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			const each, all = "400", 800
			g := startGuest(t, home, []string{"../../tests/guests/java/hotspot/StuckVirtuals.java"},
				"hotspot.StuckVirtuals", each)
			p := g.attach(t)
			if p.Version.JDK < 21 {
				t.Skip("no virtual threads")
			}
			tried = true
			for _, most := range []int{all, all / 4} {
				collections, err := p.Collections()
				if err != nil {
					t.Fatalf("%d collections, %v", collections, err)
				}
				list, err := p.VirtualThreads(most, rand.IntN)
				if err != nil {
					t.Fatal(err)
				}
				sum, seen := 0., map[uint64]bool{}
				var words []vmruntime.VirtualWords
				for _, v := range list {
					state, err1 := p.Words([]uint64{v.State}, 4)
					blocker, err2 := p.Words([]uint64{v.Blocker}, 8)
					if err := errors.Join(err1, err2); err != nil {
						t.Fatal(err)
					}
					words = append(words, vmruntime.VirtualWords{State: uint32(state[0]), Blocker: blocker[0]})
				}
				doing, err := p.DescribeVirtual(words, collections)
				if err != nil {
					t.Fatal(err)
				}
				g.jcmd(t, "GC.run")
				if _, err := p.DescribeVirtual(words, collections); !errors.Is(err, vmruntime.ErrMoved) {
					t.Errorf("after a collection: %v", err)
				}
				for i, v := range list {
					sum += v.Weight
					d := doing[i]
					if d.State != vmruntime.VirtualParked ||
						d.Class != "java.util.concurrent.locks.ReentrantLock$NonfairSync" || d.Owner == 0 ||
						v.Continuation == 0 || seen[v.ID] {
						t.Errorf("%+v: %+v", v, d)
					}
					seen[v.ID] = true
				}
				// Places of a hash table have one entry or a few.
				if math.Abs(sum-all) > all/3 || len(list) > 2*most || most == all && sum != all {
					t.Errorf("%d drawn of at most %d stand for %v of %d", len(list), most, sum, all)
				}
			}
		})
	}
	if !tried {
		t.Skip("no JDK with virtual threads: install JDK 21 or later")
	}
}
