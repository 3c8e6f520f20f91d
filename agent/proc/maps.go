package proc

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	// maxMapLines bounds the mappings that are looked at: four times the kernel's default vm.max_map_count, and what
	// databases raise it to.
	maxMapLines = 1 << 18
	// maxMappings bounds those that are kept.
	maxMappings = 1 << 16
	// maxMapLine is how much of a line is kept, in bytes. Paths of mapped files may be longer than PATH_MAX.
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

// Maps reads the mappings of a process for which keep returns true; nil keeps all. Kernel threads and processes that
// are about to end have none. The kernel writes the file in pieces, so mappings that change meanwhile may appear
// both as they were and as they are. A target can delay this read: call it through a Pool.
func (r Root) Maps(pid int, keep func(*Mapping) bool) (Maps, error) {
	f, err := os.Open(r.path(pid, "maps"))
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
