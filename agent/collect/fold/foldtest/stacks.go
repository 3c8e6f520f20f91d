// Package foldtest writes stacks as text, for tests. They begin with the outermost frame, as the
// papers draw paths, each frame as method:place@depth. The method is one letter, which gives the
// kind of frame: see Method.
package foldtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// JIT is a frame of compiled code of HotSpot.
func JIT(version, offset int) bpf.Frame {
	return bpf.Frame(uint64(bpf.FrameJIT)<<60 | uint64(version)<<32 | uint64(offset))
}

// Method returns the frame of a method: compiled code a to z, interpreted A to Z, stubs !, native
// code 0 to 9. Only frames of the first two identify their method.
func Method(m byte, place uint64) bpf.Frame {
	switch {
	case 'a' <= m && m <= 'z':
		return bpf.Frame(uint64(bpf.FrameJIT)<<60 | uint64(m)<<32 | place)
	case 'A' <= m && m <= 'Z':
		return bpf.Frame(uint64(bpf.FrameInterpreted)<<60 | uint64(m)<<16 | place)
	case m == '!':
		return bpf.Frame(uint64(bpf.FrameStub)<<60 | uint64(m)<<16 | place)
	}
	return bpf.Frame(uint64(bpf.FrameNative)<<60 | uint64(m)<<32 | place)
}

// Letter is the inverse of Method.
func Letter(f bpf.Frame) (m byte, place uint64) {
	switch f.Kind() {
	case bpf.FrameInterpreted:
		return byte(f >> 16), uint64(f) & 0xffff
	case bpf.FrameStub:
		return byte(f >> 16), uint64(f) & 0xffff
	}
	return byte(f >> 32), uint64(f) & 0xffffffff
}

// Frames parses a stack. It returns frames and depths, innermost first.
func Frames(text string) (user []bpf.Frame, depths []uint32) {
	for _, f := range strings.Fields(text) {
		var place, depth uint64
		rest := f[1:]
		if strings.HasPrefix(rest, ":") {
			place, rest = number(rest[1:])
		}
		if strings.HasPrefix(rest, "@") {
			depth, rest = number(rest[1:])
		}
		if rest != "" {
			panic(fmt.Sprintf("frame %q", f))
		}
		user, depths = append(user, Method(f[0], place)), append(depths, uint32(depth))
	}
	slices.Reverse(user)
	slices.Reverse(depths)
	return user, depths
}

func number(text string) (n uint64, rest string) {
	for text != "" && text[0] >= '0' && text[0] <= '9' {
		n, text = 10*n+uint64(text[0]-'0'), text[1:]
	}
	return n, text
}

// Path formats a raw stack without depths. If its walk ended early, the reason comes first, in
// brackets.
func Path(stack []guest.RawFrame) string {
	var path []string
	for _, r := range stack {
		text := ""
		switch r.Kind {
		case guest.RawKernel:
			text = "kernel"
		case guest.RawStale:
			text = "stale"
		case guest.RawNothing:
			text = "nothing"
		case guest.RawDepths:
			text = "depths"
		default:
			m, place := Letter(r.Frame)
			text = string(rune(m))
			if place != 0 {
				text += fmt.Sprintf(":%d", place)
			}
		}
		path = append(path, text)
		if r.End != 0 {
			path = append(path, "["+r.End.String()+"]")
		}
	}
	slices.Reverse(path)
	return strings.Join(path, " ")
}

// NameFrames names the frames of stacks in a process: by their methods, in capitals.
func NameFrames(p *guest.Process, users ...string) {
	for _, user := range users {
		raw, _ := Frames(user)
		for _, f := range raw {
			m, _ := Letter(f)
			p.SetName(guest.RawFrame{Frame: f},
				guest.Name{Symbols: []symbol.Symbol{symbol.Intern(symbol.Frame{Function: strings.ToUpper(string(rune(m)))})}})
		}
	}
}
