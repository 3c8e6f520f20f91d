package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lines are a set of lines of the compiler.
type lines map[string]bool

// decisions are what the compiler did because of a profile.
type decisions struct {
	inlined lines // calls that are too large without it
	direct  lines // interface and function calls
}

var (
	inlinedLine = regexp.MustCompile(`^hot-budget check allows inlining for (call \S+) \(cost \d+\) (at \S+ in function .*)$`)
	directLine  = regexp.MustCompile(`^(\S+: PGO devirtualizing .*)$`)
)

func readDecisions(text string) decisions {
	d := decisions{lines{}, lines{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := inlinedLine.FindStringSubmatch(line); m != nil {
			d.inlined[m[1]+" "+m[2]] = true
		} else if m := directLine.FindStringSubmatch(line); m != nil {
			d.direct[m[1]] = true
		}
	}
	return d
}

// An agreement compares what the compiler made of three profiles: of the agent, of the runtime in
// the same run, and of the runtime in another one.
type agreement struct {
	agent, runtime int
	// same and again are shares of what the compiler made of the runtime's profile that it also
	// made of the agent's, and of the other one.
	same, again float64
}

func agree(said [3]decisions, of func(decisions) lines) agreement {
	a, same, another := of(said[0]), of(said[1]), of(said[2])
	return agreement{len(a), len(same), same.sharedWith(a), same.sharedWith(another)}
}

// sharedWith is the share of the lines that another set has, too: 1 if there are none.
func (l lines) sharedWith(m lines) float64 {
	if len(l) == 0 {
		return 1
	}
	both := 0
	for line := range l {
		if m[line] {
			both++
		}
	}
	return float64(both) / float64(len(l))
}

func (a agreement) cells() []string {
	return []string{strconv.Itoa(a.agent), strconv.Itoa(a.runtime), percent(a.same), percent(a.again)}
}

func (a agreement) String() string {
	return fmt.Sprintf("%d and %d, %s%% of these also by the agent's profile, %s%% by another of the runtime", a.agent,
		a.runtime, percent(a.same), percent(a.again))
}

// weights are those of calls, as the compiler adds them up.
type weights map[string]float64

// calls returns what the compiler makes of a profile.
func (b bench) calls(ctx context.Context, profile string) (weights, error) {
	path := filepath.Join(b.dir, "preprocessed")
	if _, err := b.goCommand(ctx, "tool", "preprofile", "-i", profile, "-o", path); err != nil {
		return nil, err
	}
	return readCalls(path)
}

// overlap is the sum of the smaller ones of the shares.
func (w weights) overlap(v weights) (sum float64) {
	all, allOf := w.total(), v.total()
	for call, weight := range w {
		sum += min(weight/all, v[call]/allOf)
	}
	return sum
}

func (w weights) total() (sum float64) {
	for _, weight := range w {
		sum += weight
	}
	return sum
}

// hottest returns the n calls with the most weight, of those with at least so much: rarer ones are
// in a profile by chance.
func (w weights) hottest(n int, least float64) weights {
	calls := slices.SortedFunc(maps.Keys(w), func(a, b string) int {
		return cmp.Or(cmp.Compare(w[b], w[a]),
			strings.Compare(a, b))
	})
	some := weights{}
	for _, call := range calls[:min(n, len(calls))] {
		if w[call] >= least {
			some[call] = w[call]
		}
	}
	return some
}

func (w weights) missingIn(v weights) (missing []string) {
	for call := range w {
		if _, ok := v[call]; !ok {
			missing = append(missing, call)
		}
	}
	slices.Sort(missing)
	return missing
}
