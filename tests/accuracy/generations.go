package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// generations are the classes that the guest Churn ran while it was recorded, by their number, with
// the CPU time of each in nanoseconds. Code memory is constantly reused by classes with other
// numbers.
type generations map[int]float64

// generation finds the number in the name of a class, and the one in the name of its method if it
// has one.
var generation = regexp.MustCompile(`^guest\.Gen(\d{6})\.[a-zA-Z]+(\d{6})?$`)

// generationsOf returns the generations in a truth, none if it is another program's.
func generationsOf(truth guests.Truth) generations {
	found := make(generations)
	for _, claim := range truth.Claims {
		if match := generation.FindStringSubmatch(claim.Name); match != nil {
			found[number(match[1])] = float64(claim.CPU)
		}
	}
	return found
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // six digits, by the pattern
	return n
}

// judge requires that no name is wrong, and that the samples of each generation agree with its CPU
// time.
func (g generations) judge(own []stacks.Stack) []verdict {
	right := verdict{what: "stacks without a wrong name", truth: 1}
	var all, good int64
	counts := make(map[int]int64)
	for _, s := range own {
		shown := shownIn(s)
		if len(shown) == 0 {
			continue
		}
		all += s.Count
		if g.plausible(s.Thread, shown) {
			good += s.Count
			counts[shown[0]] += s.Count
		} else if len(right.examples) < maxExamples {
			right.examples = append(right.examples, abridge(s))
		}
	}
	if all > 0 {
		right.measured = float64(good) / float64(all)
	}
	return []verdict{right, g.judgeCounts(counts)}
}

// shownIn returns all numbers in the names of the stack's generation classes and methods.
func shownIn(s stacks.Stack) []int {
	var shown []int
	for _, frame := range s.Frames {
		match := generation.FindStringSubmatch(frame.Function)
		if match == nil {
			continue
		}
		shown = append(shown, number(match[1]))
		if match[2] != "" {
			shown = append(shown, number(match[2]))
		}
	}
	return shown
}

// plausible reports whether all numbers on one stack are equal, this generation ran, and on this
// thread: worker-0 runs the even ones, worker-1 the odd ones.
func (g generations) plausible(thread string, shown []int) bool {
	for _, n := range shown {
		if n != shown[0] {
			return false
		}
	}
	_, ran := g[shown[0]]
	return ran && strings.HasSuffix(thread, strconv.Itoa(shown[0]%2))
}

// judgeCounts requires that no generation has more samples than its CPU time permits: the excess
// would be another one's. It may have fewer if the code was gone before it could be named. Each
// thread's first and last generations were only partly sampled, and are left out.
func (g generations) judgeCounts(counts map[int]int64) verdict {
	const outlier = 6 // standard deviations: not to be expected in any of hundreds of generations
	whole := g.between(counts)
	var samples, nanos float64
	for _, n := range whole {
		samples += float64(counts[n])
		nanos += g[n]
	}
	v := verdict{what: "generations without others' samples", truth: 1, tolerance: 1 - wholeStacks}
	if samples == 0 {
		return v
	}
	good := 0
	for _, n := range whole {
		expected := g[n] * samples / nanos
		if float64(counts[n]) <= expected+outlier*math.Sqrt(expected) {
			good++
		} else if len(v.examples) < maxExamples {
			v.examples = append(v.examples, fmt.Sprintf("generation %d: %d samples, expected %.0f", n, counts[n],
				expected))
		}
	}
	v.measured = float64(good) / float64(len(whole))
	return v
}

// between returns the generations that ran after the first and before the last one sampled on the
// same thread.
func (g generations) between(counts map[int]int64) []int {
	first, last := [2]int{math.MaxInt, math.MaxInt}, [2]int{}
	for n := range counts {
		first[n%2], last[n%2] = min(first[n%2], n), max(last[n%2], n)
	}
	var whole []int
	for n := range g {
		if n > first[n%2] && n < last[n%2] {
			whole = append(whole, n)
		}
	}
	return whole
}
