package journeys

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/browser"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// TestWhyIsItSlow follows a user to the reasons for which requests of Slow are slow.
func TestWhyIsItSlow(t *testing.T) {
	needs.Root(t, "sampling")
	b := browser.Start(t)
	for _, c := range []struct {
		reason string
		method string   // in which requests are slow
		wanted []string // besides
	}{
		{"lock", "Slow.reserve", []string{"monitor", "stocktaking"}},
		{"downstream", "Slow.price", []string{"socket"}},
		{"disk", "Slow.journal", []string{"disk"}},
		{"queue", "Slow.print", []string{"park"}},
		{"neighbours", "Slow.price", []string{"runnable"}},
		{"quota", "Slow.price", []string{"throttled"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			guest := start(t, "Slow", c.reason)
			if c.reason == "quota" {
				limitCPU(t, guest)
			}
			j := newJourney(t, "why-is-it-slow.md", c.reason)
			j.run(append(c.wanted, c.method)...)
			j.look(b, c.reason+".html", "slow-"+c.reason+".png", c.method)
			j.end()
		})
	}
}

// limitCPU has a guest get a fifth of a CPU.
func limitCPU(t *testing.T, guest *jvm.Guest) {
	t.Helper()
	write := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := "/sys/fs/cgroup"
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	unified := err == nil
	if unified {
		write(root, "cgroup.subtree_control", "+cpu")
	} else { // version 1
		root = filepath.Join(root, "cpu")
	}
	pid := strconv.Itoa(guest.PID())
	group := filepath.Join(root, "vmprof-slow-"+pid)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		guest.Close() // or the group could not be removed
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	if unified {
		write(group, "cpu.max", "20000 100000") // us, of each so many
	} else {
		write(group, "cpu.cfs_period_us", "100000")
		write(group, "cpu.cfs_quota_us", "20000")
	}
	write(group, "cgroup.procs", pid)
}
