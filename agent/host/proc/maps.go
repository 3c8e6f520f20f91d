package proc

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, Limit uint64 // addresses: [Start, Limit)
	Offset       uint64 // position of Start in the file, bytes
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

// parseMapping reads "start-limit perms offset major:minor inode path", as written by show_map_vma
// in fs/proc/task_mmu.c. Only the path is of the target's making.
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

// parsePath undoes the kernel's one escape, \012 for a newline. A file whose name holds those four
// characters is taken for one with a newline; it cannot be opened under that name, as inodes are
// compared.
func parsePath(b []byte) (path string, deleted bool) {
	b, deleted = bytes.CutSuffix(b, []byte(" (deleted)"))
	return strings.ReplaceAll(string(b), `\012`, "\n"), deleted
}

const (
	// maxMapLines bounds the mappings that are looked at: four times the kernel's default
	// vm.max_map_count, and what databases raise it to.
	maxMapLines = 1 << 18
	// maxMappings bounds those that are kept.
	maxMappings = 1 << 16
	// maxMapLine is how much of a line is kept, in bytes. Paths of mapped files may be longer than
	// PATH_MAX.
	maxMapLine = 8 << 10
	// maxMapBytes bounds the whole file.
	maxMapBytes = 64 << 20
)

// pathTooLong stands for a path that does not fit maxMapLine. It is not the name of any file.
const pathTooLong = "[path too long]"

// Maps are mappings in ascending order of Start.
type Maps []Mapping

// Find returns the mapping that holds addr, or nil.
func (m Maps) Find(addr uint64) *Mapping {
	i, ok := slices.BinarySearchFunc(m, addr, func(m Mapping, addr uint64) int { return cmp.Compare(m.Start, addr) })
	if !ok {
		i-- // the last one that starts below addr
	}
	if i < 0 || addr >= m[i].Limit {
		return nil
	}
	return &m[i]
}

// Maps reads the mappings of a process for which keep returns true; nil keeps all. Kernel threads
// and processes that are about to end have none. The kernel writes the file in pieces, so mappings
// that change meanwhile may appear both as they were and as they are. A target can delay this read:
// call it through a Pool.
func (r Root) Maps(pid int, keep func(*Mapping) bool) (Maps, error) {
	f, err := r.open(pid, "maps")
	if err != nil {
		return nil, explain(pid, "open maps", err)
	}
	defer f.Close()
	maps, err := parseMaps(f, keep)
	if err != nil {
		return nil, explain(pid, "read maps", err)
	}
	return maps, nil
}

func parseMaps(src io.Reader, keep func(*Mapping) bool) (Maps, error) {
	limited := &io.LimitedReader{R: src, N: maxMapBytes + 1}
	lines := bufio.NewReaderSize(limited, maxMapLine)
	var maps Maps
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		if err != nil && len(line) == 0 {
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
			slices.SortStableFunc(maps, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
			return maps, nil
		}
		m, bad := parseMapping(bytes.TrimSuffix(line, []byte("\n")))
		if bad != nil {
			return nil, fmt.Errorf("line %d: %w", n, bad)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			m.Path = pathTooLong
			_, err = lines.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if keep == nil || keep(&m) {
			maps = append(maps, m)
		}
		if limited.N <= 0 || n > maxMapLines || len(maps) > maxMappings {
			return nil, fmt.Errorf("%d lines, %d mappings kept: %w", n, len(maps), ErrTooLarge)
		}
	}
}
