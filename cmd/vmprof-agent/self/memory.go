// Package self is about this process: how much memory it uses, and which privileges it gives up
// once the agent is loaded.
package self

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// cgroupShare of the cgroup's memory limit is the Go heap's: the rest is for the kernel side, whose
// maps and buffers count as the agent's, for page cache, and for the program itself.
const cgroupShare = 0.7

// LimitMemory makes the garbage collector keep below the memory limit of the agent's cgroup, unless
// GOMEMLIMIT says otherwise or there is none.
func LimitMemory(log *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit, err := cgroupLimit("/proc/self", "")
	if err != nil {
		log.Warn("cannot read the memory limit of the cgroup; set GOMEMLIMIT instead", "err", err)
		return
	}
	if limit < math.MaxInt64 {
		heap := int64(cgroupShare * float64(limit))
		debug.SetMemoryLimit(heap)
		log.Debug("memory limit of the cgroup", "bytes", limit, "heap", heap)
	}
}

// MaxContexts is how many calling contexts fit into the heap, below its limit.
func MaxContexts() int { return contextsIn(debug.SetMemoryLimit(-1)) }

// contextsIn is how many calling contexts fit into a heap of that limit, in addition to all else:
// one takes some 50 bytes while it is recorded, and as much again as part of a profile.
func contextsIn(heap int64) int {
	const bytes, least = 350, 1 << 16
	return int(min(max(heap/bytes, least), agent.DefaultMaxContexts))
}

// cgroupLimit returns the lowest memory limit of a process's cgroup and those above it,
// math.MaxInt64 for none. process is its directory in procfs; mounts are looked for below root,
// which only tests set.
func cgroupLimit(process, root string) (int64, error) {
	paths, err := cgroupPaths(process)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return 0, fmt.Errorf("find cgroups: %w", err)
	}
	lowest := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		m, ok := parseCgroupMount(line)
		if !ok {
			continue
		}
		path, ok := paths[m.controller]
		if !ok {
			continue
		}
		// In a container the mount shows the part of the hierarchy below m.root only, and with a
		// cgroup namespace paths are relative to that.
		if inside, ok := strings.CutPrefix(path, m.root); ok && (inside == "" || inside[0] == '/' || m.root == "/") {
			path = inside
		}
		for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
			if limit, ok := readLimit(filepath.Join(root, m.point, path, m.file)); ok {
				lowest = min(lowest, limit)
			}
			if path == "/" {
				break
			}
		}
	}
	return lowest, nil
}

// cgroupPaths returns the process's cgroups: that of the memory controller of version 1 as
// "memory", that of version 2 as "".
func cgroupPaths(process string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	paths := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		// As cgroups(7) says: hierarchy:controllers:path.
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			if controller == "memory" || fields[0] == "0" {
				paths[controller] = fields[2]
			}
		}
	}
	return paths, nil
}

// A cgroupMount is where a hierarchy is mounted, and the file that has a limit there.
type cgroupMount struct{ controller, root, point, file string }

// parseCgroupMount reads a line of mountinfo; see proc_pid_mountinfo(5). ok is false for other
// mounts.
func parseCgroupMount(line string) (m cgroupMount, ok bool) {
	fields := strings.Fields(line)
	dash := 0
	for i, f := range fields {
		if f == "-" {
			dash = i
			break
		}
	}
	if dash < 6 || len(fields) < dash+4 {
		return m, false
	}
	m = cgroupMount{root: fields[3], point: fields[4]}
	switch fields[dash+1] {
	case "cgroup2":
		m.file = "memory.max"
		return m, true
	case "cgroup":
		m.controller, m.file = "memory", "memory.limit_in_bytes"
		for option := range strings.SplitSeq(fields[dash+3], ",") {
			ok = ok || option == "memory"
		}
	}
	return m, ok
}

// readLimit reads a file with a limit. ok is false if there is none.
func readLimit(path string) (bytes int64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	bytes, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	// Version 1 has a number of pages that cannot be had for "none", version 2 the word max.
	return bytes, err == nil && bytes > 0 && bytes < math.MaxInt64/2
}
