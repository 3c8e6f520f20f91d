package hotspot

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Some processors run instructions in the cache line of a hardware breakpoint, and in the next one,
// far slower (AMD Zen 4: a loop of 35 bytes 3.5 times, as if it were decoded anew in each pass). A
// timing contains that. It does not matter to code that is executed once between two traps, but a
// short loop there can make timings several times too long. The timer tries whether the processor
// is one of them.
//
// C1's loops are what the method has: places next to one are not used. C2 makes several loops of
// one, and those that are short run for few iterations most of the time. Such versions are timed,
// and a note names them.

const (
	cacheLine   = 64
	tightLoop   = 2 * cacheLine // bytes; what is next to a breakpoint is a small part of longer loops
	longestCode = 256 << 10     // bytes of a compilation that are searched
	slowBeside  = 1.5           // timer.slower from which it matters
)

// A tight is the code of a loop of few bytes that calls nothing.
type tight struct{ begin, end uint64 }

func (l tight) contains(address uint64) bool { return address >= l.begin && address < l.end }

// beside reports whether a breakpoint at an address makes the loop slower. One in the loop itself
// stops each pass anyway.
func (l tight) beside(address uint64) bool {
	line := address &^ (cacheLine - 1)
	return !l.contains(address) && l.begin < line+2*cacheLine && l.end > line
}

// tightLoops finds the loops of few bytes in code at an address, as far as it can be decoded: jumps
// back over a short distance.
func tightLoops(code []byte, at uint64) (list []tight) {
	var call uint64 // the last one
	for off := 0; off < len(code); {
		i, err := probesite.Decode(code[off:])
		if err != nil {
			break // data, or the end
		}
		pc := at + uint64(off)
		if i.Calls() {
			call = pc
		} else if target, ok := i.Branch(pc); ok && target >= at && target <= pc && pc-target < tightLoop &&
			call < target {
			list = append(list, tight{target, pc + uint64(i.Len)})
		}
		off += i.Len
	}
	return list
}

// tightIn finds the tight loops of a compilation, if breakpoints make code next to them slower
// here.
func (g *guest) tightIn(c *vmruntime.Compilation) []tight {
	if runtime.GOARCH != "amd64" || g.engine.timer.slower < slowBeside || c.End <= c.Begin {
		return nil
	}
	code := make([]byte, min(c.End-c.Begin, longestCode))
	if err := g.process.memory.Read(c.Begin, code); err != nil {
		g.report(err)
		return nil
	}
	return tightLoops(code, c.Begin)
}

// besideAny reports whether breakpoints make a loop slower. Loops that have one of some places in
// them do not count: what is timed begins and ends there.
func besideAny(loops []tight, places, others []uint64) bool {
	return slices.ContainsFunc(loops, func(l tight) bool {
		return !slices.ContainsFunc(places, l.contains) && (slices.ContainsFunc(places, l.beside) ||
			slices.ContainsFunc(others, l.beside))
	})
}

// slowed says why something is not timed.
func (t *timer) slowed() string {
	return fmt.Sprintf("a short loop is next to a breakpoint, which makes such loops up to %.1f times slower on this "+
		"processor", t.slower)
}

// noteSlowed is the note about versions that are timed although they have such loops; "" if there
// are none.
func (g *guest) noteSlowed() string {
	var names []string
	for _, v := range g.versions {
		if v.suspect {
			names = append(names, v.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("process %d: %s: %s; if much of their time is in it, timings are too long", g.process.PID,
		strings.Join(names, ", "), g.engine.timer.slowed())
}
