// Package hotspot turns a recorded call graph into hints for HotSpot's inliner, as Arnold and
// Grove's inliners use theirs (CGO 2005, sections 5 and 6.3). The hints are few, each has its
// evidence, and nobody applies them but the user:
//
//	plan, err := hotspot.Advise(p, hotspot.Options{})
//	err = plan.WriteText(os.Stdout, "directives.json")
//	os.WriteFile("directives.json", plan.Directives(), 0o644) // -XX:CompilerDirectivesFile
//
// The paper's inliners decide about every call, with a size limit that grows with the weight of an
// edge. HotSpot's C2 decides by profiles of its own, and mostly well. So there is advice only where
// a limit keeps it from inlining a call that is hot.
package hotspot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Limits of C2 where the profile does not have those of its JVM: the defaults of JDK 11 to 26 on
// x86-64.
const (
	defaultFreqInlineSize  = 325
	defaultInlineSmallCode = 2500
	defaultMajorReceiver   = 90
)

// What there is advice about.
const (
	// MaxAdvice bounds the pieces of advice: a reader shall try each.
	MaxAdvice = 5

	leastGain   = 0.01 // share of the CPU time: smaller effects are hardly measured
	mostInlined = 4000 // bytes of bytecode: C2 stops at 8000 for all of a compilation (DesiredMethodLimit)

	// What a call costs at most, in seconds, beyond the work of the callee: the two guests of
	// docs/measurements/inlining-hints.md save 4 and 8 ns.
	directCall  = 5e-9
	virtualCall = 10e-9

	leastTargets = 3   // C2 inlines both targets where there are two
	onlyTarget   = 0.9 // share of the calls from which a site with more targets counts as one with a single target
	step         = 5   // percentage points: more digits would claim too much
	margin       = 10  // percentage points below the observed share: the JVM's own counts are from an earlier time

	wide = 10 // how far apart the ends of an interval may be where a time is divided by a number of calls

	leastSamples  = 300 // samples in code, before a method inlined there counts as cold
	leastBytecode = 100 // bytes: what is saved where a cold method is not inlined
)

// Options select what to advise about. The zero value is the process with the most CPU time.
type Options struct {
	PID int64
}

// A Kind is what a piece of advice changes.
type Kind uint8

const (
	Inline     Kind = iota // a method is always inlined into some others
	Guard                  // a call with three or more receivers is inlined for the most frequent one
	DontInline             // a method is never inlined into some others
)

// Advice is one change, and why.
type Advice struct {
	Kind    Kind
	Callee  string   // Inline and DontInline: the method, as the VM has it, with its signature
	Into    []string // methods with compiled code that contains the calls, in the same form
	Percent int      // Guard: for -XX:TypeProfileMajorReceiverPercent
	Reason  string   // why the VM does not do it by itself
	Calls   []Calls  // hottest first
	// AtMost is the share of the process's CPU time that it may save; NaN if that is unknown.
	AtMost float64
	// Entering is the share of the CPU time in the prologues and epilogues of the callees; NaN if
	// unknown.
	Entering float64
}

// Calls are those from one place to one method.
type Calls struct {
	Caller    string // for people
	Site      profile.Site
	Callee    string
	Several   bool    // call sites on this line
	Rate      float64 // a second
	Low, High float64 // ends of the 95 % interval of Rate
	// Unmeasured says that Rate is only the middle of an interval: nothing shows how often the call
	// is made.
	Unmeasured bool
	Of         float64 // share of the process's calls whose number is known; 0 if it is not one of them
	Target     float64 // share of the calls of the site
	Targets    int     // least number of targets of the site
	Counted    bool    // Target is by the JVM's own counts
	Time       float64 // seconds of CPU time a call in the callee's own code; 0 if unknown

	// What advice about the calls can change: of a guarded call, those to all targets.
	spent float64 // CPU time in callees, in seconds
	high  float64 // upper end of the calls a second
}

// A Plan is the advice for one process.
type Plan struct {
	Comm    string
	PID     int64
	Seconds float64 // seconds that were recorded
	CPU     float64 // CPU seconds a second; 0 if none were recorded
	Advice  []Advice
	Others  int      // processes with calls that it is not about
	Notes   []string // what limits it
}

// ErrNoCalls is the error for a profile without calls of a JVM. It says how to record some.
var ErrNoCalls = errors.New("the profile has no estimated calls of a JVM: record with vmprof-agent record -e " +
	"cpu,calls -p PID")

// Advise finds advice in a stored profile, which any program may have written.
func Advise(p *pprof.Profile, o Options) (*Plan, error) {
	e, err := read(p, o.PID)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Comm: e.comm, PID: e.pid, Seconds: e.seconds, CPU: e.cpu, Others: e.others}
	list := append(e.inline(), e.guard()...)
	slices.SortStableFunc(list, func(a, b Advice) int { return cmp.Compare(b.weight(), a.weight()) })
	list = append(list, e.dontInline(list)...)
	plan.Advice = list[:min(len(list), MaxAdvice)]
	if more := len(list) - MaxAdvice; more > 0 {
		plan.Notes = append(plan.Notes, fmt.Sprintf("%d more with less effect: try these first", more))
	}
	switch {
	case e.cpu == 0:
		plan.Notes = append(plan.Notes, "no CPU time was recorded, so that effects are unknown: record -e cpu,calls")
	case len(e.compiled) == 0:
		plan.Notes = append(plan.Notes, "no code of C2 was sampled: record for longer, or when the program is warm")
	}
	return plan, nil
}

// weight orders advice: by what it may save, or by calls if that is unknown.
func (a *Advice) weight() float64 {
	if !math.IsNaN(a.AtMost) {
		return a.AtMost
	}
	sum := 0.
	for _, c := range a.Calls {
		sum += c.Of
	}
	return sum
}

// inline advises about callees that are too large for C2: those of hot calls, each for all of its
// callers.
func (e *evidence) inline() (list []Advice) {
	index := map[string]int{}
	for i := range e.sites {
		s := &e.sites[i]
		for _, t := range s.Targets {
			if len(s.Targets) >= leastTargets && s.Share(t) < onlyTarget || t.Callee == s.Caller || !stable(t.Callee) {
				continue
			}
			// What keeps a method from being inlined into itself is a limit of recursion, also by
			// way of another one.
			into := slices.DeleteFunc(e.into(s.Caller), func(root string) bool { return root == t.Callee })
			reason := e.refused(t.Callee)
			if len(into) == 0 || reason == "" || e.inlinedAlready(s.Caller, t.Callee) {
				continue
			}
			at, known := index[t.Callee]
			if !known {
				at = len(list)
				index[t.Callee] = at
				list = append(list, Advice{Kind: Inline, Callee: t.Callee, Reason: reason})
			}
			a := &list[at]
			a.Into = add(a.Into, into...)
			a.Calls = append(a.Calls, e.calls(s, t))
		}
	}
	for i := range list {
		e.judge(&list[i], directCall)
	}
	return slices.DeleteFunc(list, func(a Advice) bool { return !e.matters(&a, directCall) })
}

// guard advises about calls with three or more targets, of which one has more than cct.GuardedShare
// of the calls but less than C2 asks for. The shares are those that C2 decides by, if the profile
// has them: the VM's own counts.
func (e *evidence) guard() []Advice {
	var all Advice
	least := 1.
	for i := range e.sites {
		c, ok := e.mostFrequent(&e.sites[i])
		into := e.into(e.sites[i].Caller)
		if !ok || c.Target <= cct.GuardedShare || c.Target >= float64(e.limits.TypeProfileMajorReceiverPercent)/100 ||
			len(into) == 0 {
			continue
		}
		one := Advice{Kind: Guard, Into: into, Calls: []Calls{c}}
		if e.judge(&one, virtualCall); !e.matters(&one, virtualCall) {
			continue
		}
		all.Into, all.Calls = add(all.Into, into...), append(all.Calls, c)
		least = min(least, c.Target)
	}
	if len(all.Calls) == 0 {
		return nil
	}
	all.Kind = Guard
	all.Percent = max((int(math.Round(100*least))-margin)/step*step, int(100*cct.GuardedShare))
	all.Reason = fmt.Sprintf("the most frequent receiver of %s has less than TypeProfileMajorReceiverPercent, %d %%",
		stored.Plural(len(all.Calls), "call"), e.limits.TypeProfileMajorReceiverPercent)
	e.judge(&all, virtualCall)
	return []Advice{all}
}

// mostFrequent returns the calls of a virtual site with three targets or more to the most frequent
// one; ok is false for other sites.
func (e *evidence) mostFrequent(s *site) (c Calls, ok bool) {
	if s.Site.Offset < 0 {
		return c, false
	}
	if v, counted := e.virtual[place{s.Caller, s.Site.Offset}]; counted {
		at := slices.IndexFunc(s.Targets, func(t cct.Target[string]) bool { return t.Callee == v.target })
		if at < 0 {
			return c, false // the program has changed
		}
		c = e.calls(s, s.Targets[at])
		c.Target, c.Targets, c.Counted = v.share, max(v.classes, len(s.Targets)), true
		c.spent, c.high = e.whole(s)
		return c, true
	}
	if len(s.Targets) < leastTargets {
		return c, false
	}
	c = e.calls(s, s.Targets[0])
	c.spent, c.high = e.whole(s)
	return c, true
}

// dontInline advises about cold methods in code into which others should be inlined: they use up
// the room there. That a method is cold follows from samples alone, so it takes many of them, and
// exact ones.
func (e *evidence) dontInline(hot []Advice) (list []Advice) {
	seen, wanted := map[string]bool{}, map[string]bool{}
	for _, a := range hot {
		if a.Kind == Inline {
			wanted[a.Callee] = true
		}
	}
	for _, a := range hot {
		if a.Kind != Inline {
			continue
		}
		for _, root := range a.Into {
			c := e.compiled[root]
			if c == nil || c.samples < leastSamples || c.approximate || seen[root] {
				continue
			}
			seen[root] = true
			for _, name := range c.inlined {
				callee, size := e.sized(name)
				if size < leastBytecode || c.touched[name] || wanted[callee] || !stable(callee) {
					continue
				}
				list = append(list, Advice{Kind: DontInline, Callee: callee, Into: []string{root}, AtMost: math.NaN(),
					Entering: math.NaN(),
					Reason: fmt.Sprintf("none of %d samples in the code of %s is in it or in what it calls; it has "+
						"%d bytes of bytecode", c.samples, display(root), size)})
			}
		}
	}
	return list
}

// judge fills in what advice may save, and orders its calls. A call takes at most cost more than
// the work. Only the time in the callee and in the code around the call can become less.
func (e *evidence) judge(a *Advice, cost float64) {
	slices.SortStableFunc(a.Calls, func(x, y Calls) int { return cmp.Compare(y.Rate, x.Rate) })
	a.AtMost, a.Entering = math.NaN(), math.NaN()
	if e.cpu == 0 {
		return
	}
	a.Entering = 0
	var high, time float64
	callers, callees := map[string]bool{}, map[string]bool{}
	for _, c := range a.Calls {
		high += c.high
		time += c.spent
		if !callers[c.Caller] {
			callers[c.Caller] = true
			time += e.ownTime[c.Caller]
		}
		if !callees[c.Callee] {
			callees[c.Callee] = true
			a.Entering += e.callees[c.Callee].entering / e.seconds / e.cpu
		}
	}
	a.AtMost = min(time/e.seconds/e.cpu, high*cost/e.cpu, 1)
}

// matters reports whether calls probably take leastGain of the CPU time. The upper ends of wide
// intervals are no reason to try something.
func (e *evidence) matters(a *Advice, cost float64) bool {
	if e.cpu == 0 {
		return a.weight() >= leastGain
	}
	rate := 0.
	for _, c := range a.Calls {
		rate += c.Rate
	}
	return min(a.AtMost, rate*cost/e.cpu) >= leastGain
}

// add adds those that are not in the list.
func add(list []string, more ...string) []string {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// display is a method's name for people: without its signature.
func display(systemName string) string {
	name, _, _ := strings.Cut(systemName, "(")
	return name
}
