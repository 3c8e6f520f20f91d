package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A contextStudy is one of the things that are measured of contexts which are found without walking every stack.
type contextStudy string

const (
	// chainStudy is CallerChaining of Inoue and Nakatani (OOPSLA 2009), with as many walks as the agent chooses, from a
	// program's first iteration on.
	chainStudy contextStudy = "chain"
	// everyStudy has one in N samples walked, whatever the program does.
	everyStudy contextStudy = "every"
	// partialStudy is Whaley's partial walk (Java Grande 2000), for some numbers of frames that must be the known ones.
	partialStudy contextStudy = "partial"
	// precisionStudy is how well the windows of a recording predict one another, for some sampling intervals.
	precisionStudy contextStudy = "precision"
)

// A contexts section records programs with contexts found in other ways than by walking every stack, and every stack walked
// nevertheless to compare with.
type contexts struct {
	study    contextStudy
	trials   []contextTrial
	settings []contextSetting
	length   contextLength
	results  []contextResult
}

// A contextTrial is a program to record.
type contextTrial struct {
	study   contextStudy
	program string
	vm      bool // of the reference guest
	jdk     jvm.JDK
}

// String is the trial's name: what -run is matched with.
func (t contextTrial) String() string { return fmt.Sprintf("contexts, %s, %s", t.program, t.study) }

// contextPrograms are those of the suite, with shallow stacks and deep ones.
var contextPrograms = []string{"Xalan", "Scalac", "Javac", "Jython", "H2", "Luindex"}

// contextVMPrograms are those of the reference guest, which count as one program.
var contextVMPrograms = []string{"recursive", "virtual", "phased", "threaded"}

// planContexts has a section for each study, in the order of the documentation.
func planContexts(jdks []jvm.JDK, o options) (sections []section) {
	for _, study := range []contextStudy{chainStudy, everyStudy, partialStudy, precisionStudy} {
		sections = append(sections, planStudy(study, jdks[0], o))
	}
	return sections
}

func planStudy(study contextStudy, jdk jvm.JDK, o options) *contexts {
	s := &contexts{study: study, settings: study.settings(), length: study.length()}
	var all []contextTrial
	for _, program := range contextPrograms {
		all = append(all, contextTrial{study: study, program: program, jdk: jdk})
	}
	for _, program := range contextVMPrograms {
		if study != precisionStudy { // by name, and nobody tells those of its methods to who samples time
			all = append(all, contextTrial{study: study, program: program, vm: true})
		}
	}
	if o.short {
		s.shorten()
		all = slices.DeleteFunc(all, func(t contextTrial) bool { return !t.short() })
	}
	for _, t := range all {
		if o.run.MatchString(t.String()) {
			s.trials = append(s.trials, t)
		}
	}
	return s
}

// short says whether the trial is in the short form: a JVM where frames are found in more ways, the reference guest where
// it does as well. Precision is left to the long one.
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
			settings = append(settings, contextSetting{(interval * time.Millisecond).String(), hz, []string{"--context=partial"}})
		}
	}
	return settings
}

// contextWarmup is until a real program spends most of its time in compiled code, with two CPUs and the compiler beside it.
const contextWarmup = 20 * time.Second

func (s contextStudy) length() contextLength {
	switch s {
	case chainStudy:
		return contextLength{window: 10 * time.Second, windows: 3, least: 3}
	case precisionStudy:
		// Windows of a second, as the paper's. On a busy machine they take longer, and there are fewer.
		return contextLength{warmup: contextWarmup, window: time.Second, windows: 10, least: 3}
	}
	return contextLength{warmup: contextWarmup, window: 10 * time.Second, windows: 1, least: 1}
}

// shorten makes the section fit for every run of the tests.
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

func (s *contexts) run(ctx context.Context, m meter) error {
	for _, t := range s.trials {
		r, err := s.record(ctx, m, t)
		if err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		s.print(m.out, r)
		s.results = append(s.results, r)
	}
	if len(s.results) == 0 {
		return nil
	}
	for _, t := range s.tables() {
		fmt.Fprintln(m.out)
		if err := t.Print(m.out); err != nil {
			return err
		}
	}
	return nil
}

// print says in a line for each recording what came of it.
func (s *contexts) print(w io.Writer, r contextResult) {
	for i := range r.recorded {
		rec := &r.recorded[i]
		sum := rec.sum()
		shares := sharesOf(&sum)
		fmt.Fprintf(w, "%v, %s: %d samples, %s%% walked",
			r.contextTrial, s.settings[i].name, sum.Walked+sum.Linked, inPercent(shares.walked))
		if sum.Check != nil {
			fmt.Fprintf(w, "; of the others right: one level %s%%, three %s%%, all %s%%",
				inPercent(shares.right[oneLevel]), inPercent(shares.right[threeLevels]), inPercent(shares.right[allLevels]))
		}
		if rec.alike != nil {
			fmt.Fprintf(w, "; correlation of windows: methods %.4f, PCCT %.4f",
				rec.likenessOf(hotMethods).correlation, rec.likenessOf(partialCCT).correlation)
		}
		fmt.Fprintln(w)
	}
}

// Indices of agent.ContextLevels.
const (
	oneLevel = iota
	threeLevels
	allLevels
)

// brokenBelow is a share of first callers that is no inaccuracy of the method: a link has its caller with it.
const brokenBelow = 0.95

// ok says that first callers are right. What else contexts are meant to reach, the tables say.
func (s *contexts) ok() bool {
	return !slices.ContainsFunc(s.results, func(r contextResult) bool {
		return slices.ContainsFunc(r.recorded, func(rec contextRecording) bool { return rec.broken() })
	})
}

// broken says that something is wrong with the agent. Of partial walks all may go to the root where stacks are shallow.
func (r *contextRecording) broken() bool {
	sum := r.sum()
	if sum.Linked == 0 {
		return sum.Mode == profile.ContextChain
	}
	return sum.Check != nil && sharesOf(&sum).right[oneLevel] < brokenBelow
}
