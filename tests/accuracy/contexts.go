package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A contextStudy is one measurement of contexts that are found without walking every stack.
type contextStudy string

const (
	// chainStudy is CallerChaining of Inoue and Nakatani (OOPSLA 2009), with the agent's choice of
	// walks, from a program's first iteration on.
	chainStudy contextStudy = "chain"
	// everyStudy walks one in N samples, whatever the program does.
	everyStudy contextStudy = "every"
	// partialStudy is Whaley's partial walk (Java Grande 2000), for several numbers of frames that
	// must match the known ones.
	partialStudy contextStudy = "partial"
	// precisionStudy is how well the windows of a recording predict one another, for several
	// sampling intervals.
	precisionStudy contextStudy = "precision"
)

// contexts are programs recorded with contexts found in other ways than by walking every stack;
// every stack is walked as well, for comparison.
type contexts struct {
	study    contextStudy
	settings []contextSetting
	length   contextLength
	results  []contextResult
}

// A contextTrial is a program to record.
type contextTrial struct {
	study   contextStudy
	program string
	vm      bool // the program runs in the reference guest
	jdk     jvm.JDK
}

// String is the trial's name, which -run matches.
func (t contextTrial) String() string { return fmt.Sprintf("contexts, %s, %s", t.program, t.study) }

// contextPrograms are those of the suite, with shallow stacks and deep ones.
var contextPrograms = []string{"Xalan", "Scalac", "Javac", "Jython", "H2", "Luindex"}

// contextVMPrograms are those of the reference guest, which count as one program.
var contextVMPrograms = []string{"recursive", "virtual", "phased", "threaded"}

// planContexts records each program in all ways that the study compares.
func planContexts(study contextStudy, jdk jvm.JDK) plan {
	return func(c harness.Choice) harness.Job[meter] {
		s := study.contexts(c.Short)
		return harness.Trials[meter, contextTrial, contextResult]{
			All: func(short bool) []contextTrial { return study.trials(jdk, short) },
			Run: harness.OneByOne(func(m meter, ctx context.Context, t contextTrial) (contextResult,
				error) {
				return s.record(ctx, m, t)
			}),
			Tables: func(results []contextResult) []harness.Table {
				s.results = results
				return s.tables()
			},
			OK: contextsOK,
		}.Plan(c)
	}
}

// contexts are those of the study before it is made.
func (s contextStudy) contexts(short bool) *contexts {
	of := &contexts{study: s, settings: s.settings(), length: s.length()}
	if short {
		of.shorten()
	}
	return of
}

// trials are all trials of the study, or those of the short form.
func (s contextStudy) trials(jdk jvm.JDK, short bool) (trials []contextTrial) {
	for _, program := range contextPrograms {
		trials = append(trials, contextTrial{study: s, program: program, jdk: jdk})
	}
	for _, program := range contextVMPrograms {
		if s != precisionStudy { // time profiles are by name, which does not distinguish their methods
			trials = append(trials, contextTrial{study: s, program: program, vm: true})
		}
	}
	if short {
		trials = slices.DeleteFunc(trials, func(t contextTrial) bool { return !t.short() })
	}
	return trials
}

// short reports whether the trial is in the short form: a JVM if frames are found in more ways
// there, the reference guest if it is equivalent. Precision is in the long form only.
func (t contextTrial) short() bool {
	switch t.program {
	case contextPrograms[0]:
		return t.study == chainStudy || t.study == partialStudy
	case contextVMPrograms[0]:
		return t.study == chainStudy || t.study == everyStudy
	}
	return false
}

const contextHz = 999

// settings are the ways to record that are compared.
func (s contextStudy) settings() (settings []contextSetting) {
	checked := func(name string, hz int, flags ...string) {
		settings = append(settings, contextSetting{name, hz, append(flags, "--check-contexts")})
	}
	switch s {
	case chainStudy:
		for _, hz := range []int{99, contextHz} {
			checked(fmt.Sprintf("%d Hz", hz), hz, "--context=chain")
		}
	case everyStudy:
		for _, n := range []int{2, 4, 16, 64} {
			checked(strconv.Itoa(n), contextHz, "--context=chain", "--leave-unknown", "--walk-every", strconv.Itoa(n))
		}
	case partialStudy:
		for k := 1; k <= 4; k++ {
			checked(strconv.Itoa(k), contextHz, "--context=partial", "--confirm-levels", strconv.Itoa(k))
		}
	case precisionStudy:
		// The agent's clock is CPU time.
		for _, interval := range []time.Duration{1, 2, 5, 10} {
			hz := int(time.Second / (interval * time.Millisecond))
			settings = append(settings, contextSetting{(interval * time.Millisecond).String(), hz,
				[]string{"--context=partial"}})
		}
	}
	return settings
}

// contextWarmup is the time until a real program spends most of its time in compiled code, with two
// CPUs and the compiler running next to it.
const contextWarmup = 20 * time.Second

func (s contextStudy) length() contextLength {
	switch s {
	case chainStudy:
		return contextLength{window: 10 * time.Second, windows: 3, least: 3}
	case precisionStudy:
		// Windows of a second, as in the paper. On a busy machine they take longer, and there are
		// fewer.
		return contextLength{warmup: contextWarmup, window: time.Second, windows: 10, least: 3}
	}
	return contextLength{warmup: contextWarmup, window: 10 * time.Second, windows: 1, least: 1}
}

// shorten makes the section short enough for every run of the tests.
func (s *contexts) shorten() {
	s.settings = s.settings[len(s.settings)-1:]
	if s.study == partialStudy {
		s.settings = s.study.settings()[bpf.DefaultConfirmLevels-1:][:1]
	}
	s.length.window, s.length.windows, s.length.least = 3*time.Second, 1, 1
	if s.length.warmup > 0 {
		s.length.warmup = time.Second
	}
}

// print prints a line with the result of each recording.
func (s *contexts) print(w io.Writer, r contextResult) {
	for i := range r.recorded {
		rec := &r.recorded[i]
		sum := rec.sum()
		shares := sharesOf(&sum)
		fmt.Fprintf(w, "%v, %s: %d samples, %s%% walked",
			r.contextTrial, s.settings[i].name, sum.Walked+sum.Linked, inPercent(shares.walked))
		if sum.Check != nil {
			fmt.Fprintf(w, "; of the others right: one level %s%%, three %s%%, all %s%%",
				inPercent(shares.right[oneLevel]), inPercent(shares.right[threeLevels]),
				inPercent(shares.right[allLevels]))
		}
		if rec.alike != nil {
			fmt.Fprintf(w, "; correlation of windows: methods %.4f, PCCT %.4f",
				rec.likenessOf(hotMethods).correlation, rec.likenessOf(partialCCT).correlation)
		}
		fmt.Fprintln(w)
	}
}

// Indices of profile.ContextLevels.
const (
	oneLevel = iota
	threeLevels
	allLevels
)

// brokenBelow is a share of right first callers that the method's inaccuracy cannot explain: a link
// includes its caller.
const brokenBelow = 0.95

// contextsOK reports whether first callers are right. Other aims are in the tables.
func contextsOK(results []contextResult) bool {
	return !slices.ContainsFunc(results, func(r contextResult) bool {
		return slices.ContainsFunc(r.recorded, func(rec contextRecording) bool { return rec.broken() })
	})
}

// broken reports whether the agent has a fault. With shallow stacks, all partial walks may reach
// the root.
func (r *contextRecording) broken() bool {
	sum := r.sum()
	if sum.Linked == 0 {
		return sum.Mode == profile.ContextChain
	}
	return sum.Check != nil && sharesOf(&sum).right[oneLevel] < brokenBelow
}
