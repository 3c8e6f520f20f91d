package hotspot

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// TestLiveLockWaits has threads wait for locks that one thread sleeps with, and one wait for work.
func TestLiveLockWaits(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			g := startGuest(t, home, []string{"../../tests/guests/java/hotspot/StuckLocks.java"}, "hotspot.StuckLocks",
				"2")
			p := g.attach(t)
			names, err := p.ThreadNames()
			if err != nil {
				t.Fatal(err)
			}
			waits, err := p.LockWaits()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, w := range waits {
				got[names[w.Thread]] = fmt.Sprintf("monitor %t class %s owner %s", w.Monitor != 0, w.Class,
					names[w.Owner])
			}
			const monitor, lock = "monitor true class java.lang.Object owner owner",
				"monitor false class java.util.concurrent.locks.ReentrantLock$NonfairSync owner owner"
			for name, want := range map[string]string{"monitor-0": monitor, "monitor-1": monitor, "lock-0": lock,
				"lock-1": lock} {
				if got[name] != want {
					t.Errorf("%s: %q instead of %q; all: %v", name, got[name], want, slices.Sorted(maps.Keys(got)))
				}
			}
			if got["owner"] != "" {
				t.Errorf("the owner waits: %s", got["owner"])
			}
		})
	}
}
