package proc

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// maxStatus bounds /proc/PID/status. Its one long line is Groups: 65,536 of up to 11 bytes.
	maxStatus = 1 << 20
	// maxNamespaces bounds NSpid: MAX_PID_NS_LEVEL of include/linux/pid_namespace.h is 32, plus the
	// host's.
	maxNamespaces = 33
)

// A Status is the part of /proc/PID/status that the agent uses.
type Status struct {
	TGID  int
	UID   uint32 // effective
	GID   uint32 // effective
	Mixed bool   // its ids differ: a set-uid program, or one that acts for somebody else
	NSpid []int  // the pid in each pid namespace, from that of Root inwards; never empty
	// Groups are the supplementary groups.
	Groups []uint32
	// ReadsAll says that it has the capability to read every file, in its user namespace.
	ReadsAll bool
}

// InnermostPID is the pid that the process itself knows: what a container's perf map or attach
// socket is named after.
func (s Status) InnermostPID() int { return s.NSpid[len(s.NSpid)-1] }

// Status reads /proc/PID/status.
func (r Root) Status(pid int) (Status, error) {
	b, err := r.read(pid, maxStatus, "status")
	if err != nil {
		return Status{}, err
	}
	s, err := parseStatus(b)
	if err != nil {
		return Status{}, fmt.Errorf("status of process %d: %w", pid, err)
	}
	return s, nil
}

// ThreadStatus reads /proc/PID/task/TID/status: its NSpid are ids of the thread.
func (r Root) ThreadStatus(pid, tid int) (Status, error) {
	b, err := r.read(pid, maxStatus, "task", strconv.Itoa(tid), "status")
	if err != nil {
		return Status{}, err
	}
	s, err := parseStatus(b)
	if err != nil {
		return Status{}, fmt.Errorf("status of thread %d: %w", tid, err)
	}
	return s, nil
}

// parseStatus reads "Key:\tvalue" lines. The kernel escapes newlines in Name, the only line that
// the process chooses, so no name can forge another line.
func parseStatus(b []byte) (Status, error) {
	var s Status
	seen := map[string]bool{}
	for line := range bytes.Lines(b) {
		key, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		var err error
		var mixed bool
		switch string(key) {
		case "Tgid":
			s.TGID, err = parsePID(bytes.TrimSpace(value))
		case "Uid":
			s.UID, mixed, err = effectiveID(value)
		case "Gid":
			s.GID, mixed, err = effectiveID(value)
		case "NSpid":
			s.NSpid, err = parsePIDs(value)
		case "Groups":
			s.Groups, err = parseGroups(value)
		case "CapEff":
			s.ReadsAll, err = readsAll(value)
		default:
			continue
		}
		if err != nil {
			return Status{}, fmt.Errorf("%s: %w", key, err)
		}
		if seen[string(key)] {
			return Status{}, fmt.Errorf("%s twice: %w", key, ErrMalformed)
		}
		s.Mixed = s.Mixed || mixed
		seen[string(key)] = true
	}
	for _, key := range []string{"Tgid", "Uid", "Gid", "NSpid"} {
		if !seen[key] {
			return Status{}, fmt.Errorf("no %s: %w", key, ErrMalformed)
		}
	}
	return s, nil
}

// effectiveID is the second of "real effective saved filesystem", and whether they differ.
func effectiveID(value []byte) (id uint32, mixed bool, err error) {
	fields := bytes.Fields(value)
	if len(fields) != 4 {
		return 0, false, fmt.Errorf("%d ids: %w", len(fields), ErrMalformed)
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 32)
	if err != nil {
		return 0, false, fmt.Errorf("id %.20q: %w", fields[1], ErrMalformed)
	}
	differs := func(other []byte) bool { return !bytes.Equal(other, fields[1]) }
	return uint32(n), slices.ContainsFunc(fields, differs), nil
}

// parseGroups reads ids.
func parseGroups(value []byte) ([]uint32, error) {
	var groups []uint32
	for _, field := range bytes.Fields(value) {
		n, err := strconv.ParseUint(string(field), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("group %.20q: %w", field, ErrMalformed)
		}
		groups = append(groups, uint32(n))
	}
	return groups, nil
}

// readsAll reports whether a set of capabilities, in hexadecimal, has one with which every file can
// be read.
func readsAll(value []byte) (bool, error) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
	if err != nil {
		return false, fmt.Errorf("capabilities %.20q: %w", value, ErrMalformed)
	}
	return n&(1<<unix.CAP_DAC_OVERRIDE|1<<unix.CAP_DAC_READ_SEARCH) != 0, nil
}

func parsePIDs(value []byte) ([]int, error) {
	fields := bytes.Fields(value)
	if len(fields) == 0 || len(fields) > maxNamespaces {
		return nil, fmt.Errorf("%d pids: %w", len(fields), ErrMalformed)
	}
	pids := make([]int, len(fields))
	for i, field := range fields {
		var err error
		if pids[i], err = parsePID(field); err != nil {
			return nil, err
		}
	}
	return pids, nil
}

func parsePID(b []byte) (int, error) {
	pid, err := strconv.ParseUint(string(b), 10, 32)
	if err != nil || pid > maxPID {
		return 0, fmt.Errorf("pid %.20q: %w", b, ErrMalformed)
	}
	return int(pid), nil
}
