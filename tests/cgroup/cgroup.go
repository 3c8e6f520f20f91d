// Package cgroup makes control groups for tests, in version 1 or 2, whichever the machine has.
//
//	g := cgroup.New(t, cgroup.CPU)
//	g.SetQuota(t, 30*time.Millisecond, 100*time.Millisecond)
//	g.Add(t, pid)
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A Controller is what a group controls.
type Controller string

const (
	CPU     Controller = "cpu"     // its quota
	Freezer Controller = "freezer" // freezer of version 1
	Frozen  Controller = "frozen"  // the freezer of version 2, which each group has
)

// mounts are where groups of a controller are made: below the first directory that has the file, in
// a new group.
var mounts = map[Controller][]struct{ parent, file string }{
	CPU:     {{"/sys/fs/cgroup", "cpu.max"}, {"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"}},
	Freezer: {{"/sys/fs/cgroup/freezer", "freezer.state"}},
	Frozen:  {{"/sys/fs/cgroup", "cgroup.freeze"}, {"/sys/fs/cgroup/unified", "cgroup.freeze"}},
}

// A Group is a control group.
type Group struct{ dir, parent, file string }

// New makes a group. It is removed with the test; what is still in it then is moved out before, and
// can go on.
func New(t testing.TB, c Controller) *Group {
	t.Helper()
	for _, m := range mounts[c] {
		g := &Group{dir: filepath.Join(m.parent, fmt.Sprintf("vmprof-test-%d-%d", os.Getpid(), time.Now().UnixNano())),
			parent: m.parent, file: m.file}
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(g.dir, m.file)); err != nil {
			os.Remove(g.dir) // a directory of a file system that has no such groups, or not this controller
			continue
		}
		t.Cleanup(func() { g.remove(t) })
		return g
	}
	needs.Missing(t, fmt.Sprintf("no control group with %s can be made: this needs root and a mounted hierarchy that "+
		"has it", c))
	return nil
}

// free is what the file of a group has if nothing is limited.
var free = map[string]string{"cpu.max": "max", "cpu.cfs_quota_us": "-1", "cgroup.freeze": "0",
	"freezer.state": "THAWED"}

func (g *Group) remove(t testing.TB) {
	if err := g.write(g.file, free[g.file]); err != nil {
		t.Error(err)
	}
	// The test's own context has ended.
	if err := wait.Until(context.Background(), wait.Long, "the control group is empty", func() (bool, error) {
		members, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(members)) {
			// One that has ended meanwhile cannot be moved.
			os.WriteFile(filepath.Join(g.parent, "cgroup.procs"), []byte(pid), 0)
		}
		err := os.Remove(g.dir)
		return err == nil || errors.Is(err, os.ErrNotExist), nil
	}); err != nil {
		t.Error(err)
	}
}

func (g *Group) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0)
}

// must writes to a file of the group.
func (g *Group) must(t testing.TB, file, text string) {
	t.Helper()
	if err := g.write(file, text); err != nil {
		t.Fatal(err)
	}
}

// Add moves a process into the group, with all of its threads.
func (g *Group) Add(t testing.TB, pid int) {
	t.Helper()
	g.must(t, "cgroup.procs", strconv.Itoa(pid))
}

// SetQuota limits the CPU time of the group to that in each period.
func (g *Group) SetQuota(t testing.TB, quota, period time.Duration) {
	t.Helper()
	if g.file == "cpu.max" {
		g.must(t, g.file, fmt.Sprintf("%d %d", quota.Microseconds(), period.Microseconds()))
		return
	}
	g.must(t, "cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10))
	err := g.write(g.file, strconv.FormatInt(quota.Microseconds(), 10))
	if errors.Is(err, syscall.EINVAL) {
		needs.Missing(t, fmt.Errorf("limit the CPU of a control group: %w", err))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Unlimit takes the quota away.
func (g *Group) Unlimit(t testing.TB) {
	t.Helper()
	g.must(t, g.file, free[g.file])
}

// Throttled returns for how long the group had no CPU because of its quota, the sum over CPUs.
func (g *Group) Throttled(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		unit := map[string]time.Duration{"throttled_usec": time.Microsecond, "throttled_time": time.Nanosecond}[name]
		if unit == 0 {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * unit
	}
	t.Fatalf("cpu.stat has no throttled time:\n%s", text)
	return 0
}

// Freeze stops what is in the group, and waits until that is so.
func (g *Group) Freeze(t testing.TB) {
	t.Helper()
	if g.file == "freezer.state" {
		g.must(t, g.file, "FROZEN")
		g.reads(t, g.file, "FROZEN")
		return
	}
	g.must(t, g.file, "1")
	g.reads(t, "cgroup.events", "frozen 1")
}

// Thaw lets it go on.
func (g *Group) Thaw(t testing.TB) {
	t.Helper()
	g.must(t, g.file, free[g.file])
}

// reads waits until one of the lines of a file is that.
func (g *Group) reads(t testing.TB, file, line string) {
	t.Helper()
	wait.For(t, wait.Long, fmt.Sprintf("%s has %q", file, line), func() bool {
		text, err := os.ReadFile(filepath.Join(g.dir, file))
		return err == nil && strings.Contains("\n"+string(text), "\n"+line+"\n")
	})
}
