package proc

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, Limit uint64 // addresses: [Start, Limit)
	Offset       uint64 // of Start in the file, bytes
	Dev          uint64 // as in unix.Stat_t: use unix.Major and unix.Minor
	Inode        uint64 // 0: no file behind it
	Path         string // hostile: a path as the process's mount namespace has it, or "[vdso]", "//anon", ""
	Deleted      bool   // the file has no name any more, or one that ends in " (deleted)"
	Read         bool
	Write        bool
	Exec         bool
	Shared       bool
}

// IsFile reports whether a file backs the mapping, memfds included.
func (m *Mapping) IsFile() bool { return m.Inode != 0 && strings.HasPrefix(m.Path, "/") }

// Executable keeps the mappings that hold code.
func Executable(m *Mapping) bool { return m.Exec }

// parseMapping reads "start-limit perms offset major:minor inode   path", as written by show_map_vma in
// fs/proc/task_mmu.c. Only the path is of the target's making.
func parseMapping(line []byte) (Mapping, error) {
	var fields [5][]byte
	rest := line
	for i := range fields {
		fields[i], rest, _ = bytes.Cut(rest, []byte(" "))
	}
	ok := true
	number := func(b []byte, base int, limit uint64) uint64 {
		n, err := strconv.ParseUint(string(b), base, 64)
		ok = ok && err == nil && n <= limit
		return n
	}
	start, limit, _ := bytes.Cut(fields[0], []byte("-"))
	major, minor, _ := bytes.Cut(fields[3], []byte(":"))
	perms := fields[1]
	if len(perms) != 4 {
		return Mapping{}, fmt.Errorf("permissions %.20q: %w", perms, ErrMalformed)
	}
	m := Mapping{
		Start:  number(start, 16, math.MaxUint64),
		Limit:  number(limit, 16, math.MaxUint64),
		Offset: number(fields[2], 16, math.MaxUint64),
		Dev:    unix.Mkdev(uint32(number(major, 16, math.MaxUint32)), uint32(number(minor, 16, math.MaxUint32))),
		Inode:  number(fields[4], 10, math.MaxUint64),
		Read:   perms[0] == 'r',
		Write:  perms[1] == 'w',
		Exec:   perms[2] == 'x',
		Shared: perms[3] == 's',
	}
	if !ok || m.Start >= m.Limit {
		return Mapping{}, fmt.Errorf("mapping %.80q: %w", line, ErrMalformed)
	}
	m.Path, m.Deleted = parsePath(bytes.TrimLeft(rest, " "))
	return m, nil
}

// parsePath undoes the kernel's one escape, \012 for a newline. A file whose name holds those four characters is
// taken for one with a newline; it cannot be opened under that name, as inodes are compared.
func parsePath(b []byte) (path string, deleted bool) {
	b, deleted = bytes.CutSuffix(b, []byte(" (deleted)"))
	return strings.ReplaceAll(string(b), `\012`, "\n"), deleted
}
