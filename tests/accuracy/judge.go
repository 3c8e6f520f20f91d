package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A verdict compares one share of the samples with the truth.
type verdict struct {
	what      string
	truth     float64 // 0 to 1
	measured  float64
	tolerance float64
	examples  []string // stacks that contradict it, a few
}

func (v verdict) ok() bool { return math.Abs(v.measured-v.truth) <= v.tolerance }

// sigmas is the permitted error of a share in standard deviations of sampling. Of a thousand true
// shares, 0.06 exceed it.
const sigmas = 4

// systematic is the permitted error of a share for other reasons than sampling. Pieces of work that
// cross the ends of the recording count completely or not at all, sampling begins a little after
// the recording does, and reading the clocks takes time, too.
const systematic = 0.01

// wholeStacks is the share of the stacks that must reach the thread's entry frame.
const wholeStacks = 0.995

// unloadedStacks is the share of the stacks that may have unnamed methods in a guest that unloads
// classes twice a second. The agent reads names up to a tenth of a second after the sample, when a
// fifth of them are gone. If other processes keep all CPUs busy, it also waits for its own. This is
// the share if it is half a generation late.
const unloadedStacks = 0.5

// entry is the outermost Java method of every thread, except carriers of virtual threads.
const (
	entry        = "java.lang.Thread.run"
	carrierEntry = "java.util.concurrent.ForkJoinWorkerThread.run"
)

// maxExamples bounds how many wrong stacks are shown.
const maxExamples = 5

// judge compares the stacks of the guest's own threads with the guest's own measurements.
func (t trial) judge(truth guests.Truth, own []stacks.Stack) []verdict {
	all := stacks.Count(own, func(stacks.Stack) bool { return true })
	if all == 0 {
		return []verdict{{what: "samples of threads " + t.program.Thread + "*", truth: 1}}
	}
	var verdicts []verdict
	if generations := generationsOf(truth); len(generations) > 0 {
		verdicts = append(verdicts, generations.judge(own)...)
	} else {
		for _, claim := range truth.Claims {
			if t.tells(claim) {
				verdicts = append(verdicts, judgeClaim(truth, claim, own, all))
			}
		}
	}
	for _, depth := range truth.Depths {
		verdicts = append(verdicts, t.judgeDepth(depth, own))
	}
	for _, under := range truth.Unders {
		verdicts = append(verdicts, judgeUnder(under, own))
	}
	return append(verdicts, t.judgeWhole(own), t.judgeStale(own))
}

// tells reports whether a profile of the trial can show the claim's share: those of inlined methods
// need more than the JVM records by default.
func (t trial) tells(claim guests.Claim) bool {
	return claim.Measure != guests.Self || !t.program.Inlines || t.flavour.InnerMethods
}

func judgeClaim(truth guests.Truth, claim guests.Claim, own []stacks.Stack, all int64) verdict {
	share := truth.Share(claim)
	got := stacks.Count(own, func(s stacks.Stack) bool {
		switch claim.Measure {
		case guests.Self:
			return s.Self(claim.Name)
		case guests.Total:
			return s.Has(claim.Name)
		case guests.Thread:
			return s.Thread == claim.Name
		}
		return false
	})
	return verdict{
		what:      string(claim.Measure) + " " + claim.Name,
		truth:     share,
		measured:  float64(got) / float64(all),
		tolerance: systematic + sigmas*math.Sqrt(share*(1-share)/float64(all)),
		examples:  leaves(own),
	}
}

// judgeDepth requires the right number of calls on the stack.
func (t trial) judgeDepth(d guests.Depth, own []stacks.Stack) verdict {
	return judgeStacks("depth of "+d.Entry, own,
		func(s stacks.Stack) bool { return s.Has(d.Entry) && s.Has(d.Bottom) },
		func(s stacks.Stack) bool { return s.Times(d.Method) == d.Times })
}

// judgeUnder requires the outer method below the inner one.
func judgeUnder(u guests.Under, own []stacks.Stack) verdict {
	return judgeStacks(u.Inner+" under "+u.Outer, own,
		func(s stacks.Stack) bool { return s.Has(u.Inner) },
		func(s stacks.Stack) bool {
			return slices.ContainsFunc(s.Frames, func(f stacks.Frame) bool {
				return strings.HasPrefix(f.Function,
					u.Outer)
			})
		})
}

// judgeWhole leaves out the stacks with unloaded methods, which are judged separately, and the time
// for which there are no samples.
func (t trial) judgeWhole(own []stacks.Stack) verdict {
	v := judgeStacks("whole stacks", own, func(s stacks.Stack) bool { return !stale(s) && !s.Has("[waking]") }, whole)
	if t.program.Mounts {
		all := stacks.Count(own, func(stacks.Stack) bool { return true })
		v.tolerance = 1 - wholeVirtuals + sigmas*math.Sqrt(wholeVirtuals*(1-wholeVirtuals)/float64(all))
	}
	return v
}

// judgeStale requires methods to be named before they are gone. If classes are unloaded twice a
// second, some are gone before any other process can look.
func (t trial) judgeStale(own []stacks.Stack) verdict {
	v := judgeStacks("stacks with all names", own, func(stacks.Stack) bool { return true },
		func(s stacks.Stack) bool { return !stale(s) })
	if t.program.Unloads {
		v.tolerance = unloadedStacks
	}
	return v
}

// stale reports whether a method on the stack was unloaded before it could be named.
func stale(s stacks.Stack) bool { return s.Has("[stale]") }

// whole reports whether the stack reaches the thread's entry frame.
func whole(s stacks.Stack) bool { return s.Truncated() == "" && (s.Has(entry) || s.Has(carrierEntry)) }

// judgeStacks requires that nearly all of the relevant stacks are right, and that there are some.
func judgeStacks(what string, own []stacks.Stack, concerned, right func(stacks.Stack) bool) verdict {
	v := verdict{what: what, truth: 1, tolerance: 1 - wholeStacks}
	of := stacks.Count(own, concerned)
	if of == 0 {
		return v
	}
	v.measured = float64(stacks.Count(own, func(s stacks.Stack) bool { return concerned(s) && right(s) })) / float64(of)
	for _, s := range own {
		if concerned(s) && !right(s) && len(v.examples) < maxExamples {
			v.examples = append(v.examples, abridge(s))
		}
	}
	return v
}

// abridge formats a stack in a line that fits on a screen.
func abridge(s stacks.Stack) string {
	const head, tail = 100, 500
	line := s.String()
	if len(line) > head+tail {
		line = line[:head] + " … " + line[len(line)-tail:]
	}
	return line
}

// leaves returns where most samples are, by their innermost Java method and its callee: the first
// thing to see when a share is wrong.
func leaves(own []stacks.Stack) []string {
	counts := make(map[string]int64)
	for _, s := range own {
		counts[leaf(s)] += s.Count
	}
	return most(counts)
}

func leaf(s stacks.Stack) string {
	if len(s.Frames) == 0 {
		return "(no frames)"
	}
	innermost := s.Frames[0].Function
	for _, frame := range s.Frames {
		if frame.Java() && frame.Function != innermost {
			return frame.Function + " > " + innermost
		}
		if frame.Java() {
			break
		}
	}
	return innermost
}

// most returns the largest counts, one line each.
func most(counts map[string]int64) []string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var lines []string
	for _, name := range names[:min(len(names), maxExamples)] {
		lines = append(lines, fmt.Sprintf("%6d %s", counts[name], name))
	}
	return lines
}
