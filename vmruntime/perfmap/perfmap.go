// Package perfmap knows the map that a program with a JIT compiler writes of its code for perf,
// /tmp/perf-PID.map: its format, how to read it as it grows, and what lies at an address. The
// program may write anything, so that everything is bounded: bytes of the file, lines, the length
// of names, and what one read takes.
//
//	piece, err := perfmap.ReadPiece(file, uid, m.Position())  // may hang: it is a file of the target's
//	added, err := m.Add(piece)                                // m is a Map
//	code, ok := m.Find(address)
//
// There is no library that shows what such programs are, so Runtime is a vmruntime.CodeMapper.
package perfmap

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of a Map. Node with a large application writes 100,000 lines, 10 MB.
const (
	MaxBytes = 64 << 20 // bytes of the file
	maxLines = 1 << 20
	// MaxName is how many bytes of a name are kept. It is one more than symbolize keeps, so that a
	// name that is cut here gets an ellipsis there.
	MaxName = 513
)

// ErrMalformed says that lines were left out. The others are used.
var ErrMalformed = fmt.Errorf("lines that are not START SIZE name: %w", vmruntime.ErrMalformed)

var errFull = fmt.Errorf("%w: more than %d lines or %d bytes", vmruntime.ErrMapFull, maxLines, MaxBytes)

// A Map is what a JIT compiler said of its code, in the format that perf defined: /tmp/perf-PID.map
// has lines "START SIZE name", with both numbers in hex. It only grows: where two lines speak of
// the same memory the later one is right, and all of what the earlier one spoke of is gone. Nothing
// says when that was, and nothing says that code is gone whose memory was not used again.
//
// The zero value is an empty map. It is for one goroutine at a time.
type Map struct {
	code  []stretch // ascending, disjoint
	name  []uint32  // where the name of each line begins in names
	names []byte
	read  int  // bytes of the file
	cut   bool // what was read ends in the middle of a line that is not kept

	position vmruntime.MapPosition // what comes next in the file
	epoch    uint32
}

// A stretch is memory that one line of the map describes, and no later one.
type stretch struct {
	begin, end uint64
	line       int32 // noLine: the code that was there is gone
	asked      bool  // Find has returned its name
}

const noLine = -1

// appendText reads a piece of the file that follows what was read before. What follows its last end
// of a line is left for the next time, unless whole says that pieces do not get longer.
// vmruntime.ErrMapFull if that is too much.
func (m *Map) appendText(piece []byte, whole bool) (a vmruntime.MapAdded, err error) {
	text := piece[:bytes.LastIndexByte(piece, '\n')+1]
	a.Bytes = len(text)
	switch {
	case len(text) > 0 && m.cut:
		_, text, _ = bytes.Cut(text, []byte{'\n'})
		m.cut = false
	case len(text) == 0 && whole:
		a.Bytes, a.Malformed, m.cut = len(piece), 1, true
	}
	if m.read += a.Bytes; m.read > MaxBytes {
		return a, errFull
	}
	var fresh []stretch
	for line := range bytes.Lines(text) {
		begin, size, name, ok := parseLine(line)
		if !ok {
			a.Malformed++
			continue
		}
		if len(m.name) == maxLines {
			return a, errFull
		}
		fresh = append(fresh, stretch{begin: begin, end: begin + size, line: int32(len(m.name))})
		m.name = append(m.name, uint32(len(m.names)))
		m.names = append(m.names, name...)
	}
	m.code, a.Replaced = overlay(m.code, inOrder(fresh))
	m.code = slices.DeleteFunc(m.code, func(s stretch) bool { return s.line == noLine })
	return a, nil
}

// parseLine cuts a line into its fields. Some compilers write 0x before numbers.
func parseLine(line []byte) (begin, size uint64, name []byte, ok bool) {
	start, rest, _ := bytes.Cut(bytes.TrimSpace(line), []byte{' '})
	length, name, _ := bytes.Cut(rest, []byte{' '})
	begin, wrong := parseHex(start)
	size, wrong2 := parseHex(length)
	ok = wrong == nil && wrong2 == nil && size > 0 && begin+size > begin && len(name) > 0
	return begin, size, name[:min(len(name), MaxName)], ok
}

func parseHex(b []byte) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(string(b), "0x"), 16, 64)
}

// inOrder returns what lines that follow one another leave of each other.
func inOrder(lines []stretch) []stretch {
	if len(lines) < 2 {
		return lines
	}
	half := len(lines) / 2
	left, _ := overlay(inOrder(lines[:half]), inOrder(lines[half:]))
	return left
}

// overlay puts fresh over old, which is code that was there before. Old code that fresh reaches
// into is gone, also where fresh does not reach. replaced reports whether Find has returned a name
// that is gone now.
func overlay(old, fresh []stretch) (out []stretch, replaced bool) {
	out = make([]stretch, 0, len(old)+len(fresh))
	for _, o := range old {
		for len(fresh) > 0 && fresh[0].end <= o.begin {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		if len(fresh) == 0 || fresh[0].begin >= o.end {
			out = append(out, o)
			continue
		}
		replaced = replaced || o.asked
		at := o.begin
		for len(fresh) > 0 && fresh[0].begin < o.end {
			out = appendGone(out, at, fresh[0].begin)
			at = fresh[0].end
			if at > o.end {
				break // it reaches into the next one, too
			}
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		out = appendGone(out, at, o.end)
	}
	return append(out, fresh...), replaced
}

func appendGone(out []stretch, begin, end uint64) []stretch {
	if begin >= end {
		return out
	}
	return append(out, stretch{begin: begin, end: end, line: noLine})
}

// Find returns the entry that holds addr.
func (m *Map) Find(addr uint64) (vmruntime.MappedCode, bool) {
	i, found := slices.BinarySearchFunc(m.code, addr, func(s stretch, addr uint64) int {
		switch {
		case addr < s.begin:
			return 1
		case addr >= s.end:
			return -1
		}
		return 0
	})
	if !found {
		return vmruntime.MappedCode{}, false
	}
	s := &m.code[i]
	s.asked = true
	return vmruntime.MappedCode{Begin: s.begin, End: s.end, Line: int(s.line), Name: m.nameOf(int(s.line))}, true
}

func (m *Map) nameOf(line int) string {
	end := len(m.names)
	if line+1 < len(m.name) {
		end = int(m.name[line+1])
	}
	return plainName(string(m.names[m.name[line]:end]))
}

// plainName is a name without V8's mark of the compiler (JS:*f is f, compiled by the optimising
// one), because a function is the same for every compiler.
func plainName(name string) string {
	if kind, rest, ok := strings.Cut(name, ":"); ok && len(rest) > 1 && strings.IndexByte("~^+*", rest[0]) >= 0 {
		switch kind {
		case "JS", "Script", "Eval", "Function", "LazyCompile":
			name = kind + ":" + rest[1:]
		}
	}
	return name
}

// Bounds are the first address of all entries, and the one after the last; 0 and 0 if there are
// none.
func (m *Map) Bounds() (low, high uint64) {
	if len(m.code) == 0 {
		return 0, 0
	}
	return m.code[0].begin, m.code[len(m.code)-1].end
}

// Bytes is the memory that the map holds.
func (m *Map) Bytes() int64 {
	return int64(cap(m.code))*int64(unsafe.Sizeof(stretch{})) + 4*int64(cap(m.name)) + int64(cap(m.names))
}
