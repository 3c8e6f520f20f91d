package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A contender is one of the compared profilers, in one of its modes. Each is attached to a running
// JVM, as by a user who finds a busy process, and samples every besidePeriod.
type contender string

// The contenders, as tables name them.
const (
	thisAgent       contender = "vmprof-agent"
	jfrExecution    contender = "JFR, ExecutionSample"
	jfrCPUTime      contender = "JFR, CPUTimeSample"
	asyncCPU        contender = "async-profiler"
	asyncFromOutset contender = "async-profiler, loaded at the JVM's start"
)

// contendersOf returns the profilers compared on a JDK. With the flag, a profiler that is loaded at
// the JVM's start is left out: it turns the flag on itself.
func contendersOf(program guests.Program, debug bool, jdk jvm.JDK) []contender {
	list := []contender{thisAgent, jfrExecution}
	if jdk.Version >= 25 {
		list = append(list, jfrCPUTime)
	}
	list = append(list, asyncCPU)
	if program.Name == inlinedBeside && !debug {
		list = append(list, asyncFromOutset)
	}
	return list
}

// inlinedBeside is the guest that is also run with the flag: its profile depends on it most.
const inlinedBeside = "Siblings"

const (
	// besidePeriod is close to JFR's own in its setting "profile", async-profiler's default, and
	// the agent's. The guests' rounds take 5 or 10 ms: samples every 10 ms would hit the same place
	// of many rounds in a row.
	besidePeriod = 11 * time.Millisecond
	// besideRounds is how often each contender records a guest, one contender after the other.
	besideRounds = 2
	// besideWarmup is the time until C2 has compiled everything that matters.
	besideWarmup = 1500 * time.Millisecond
)

// A besideTrial is one recording of a guest by one contender.
type besideTrial struct {
	program   guests.Program
	debug     bool // with -XX:+DebugNonSafepoints
	jdk       jvm.JDK
	contender contender
}

// String is the trial's name, which -run matches.
func (t besideTrial) String() string {
	debug := "default"
	if t.debug {
		debug = "debug info"
	}
	return fmt.Sprintf("beside, %s, %s, %s, %v", t.program.Name, debug, t.contender, t.jdk)
}

// flavour is how the guest runs.
func (t besideTrial) flavour() guests.Flavour {
	f := guests.Flavour{Name: "default"}
	if t.debug {
		f.Flags = []string{"-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"}
	}
	return f
}

// besidePrograms are the profiled guests: two whose work is inlined, and two whose work is largely
// outside of compiled Java code.
func besidePrograms() []guests.Program {
	list := []guests.Program{guests.Siblings()}
	for _, program := range guests.Programs() {
		switch program.Name {
		case "Inlined", "Natives", "Exceptions":
			list = append(list, program)
		}
	}
	return list
}

// planBeside records guests of known truth with the agent and with other profilers. Only the
// agent's results are judged.
func planBeside(jdks []jvm.JDK) plan {
	return harness.Trials[meter, besideTrial, besideResult]{
		All: func(short bool) []besideTrial { return besideTrials(jdks, short) },
		Run: meter.recordBeside,
		Tables: func(results []besideResult) []harness.Table {
			return []harness.Table{{Marker: "beside", Table: besideTable(results)}}
		},
		OK: besideOK,
	}.Plan
}

// besideTrials returns the trials in the order in which they run: all contenders on a guest, then
// all of them again. The short form has the agent and JFR on one guest, once.
func besideTrials(jdks []jvm.JDK, inShort bool) (trials []besideTrial) {
	rounds := besideRounds
	if inShort {
		rounds, jdks = 1, jdks[:1]
	}
	for _, program := range besidePrograms() {
		for _, jdk := range jdks {
			for _, debug := range []bool{false, true} {
				for range rounds {
					for _, c := range contendersOf(program, debug, jdk) {
						t := besideTrial{program, debug, jdk, c}
						short := program.Name == inlinedBeside && !debug && (c == thisAgent || c == jfrExecution)
						if (!debug || program.Name == inlinedBeside) && (!inShort || short) {
							trials = append(trials, t)
						}
					}
				}
			}
		}
	}
	return trials
}

// A besideResult is the result of all recordings of a trial.
type besideResult struct {
	besideTrial
	besideTally
}

func (m meter) recordBeside(ctx context.Context, trials []besideTrial) (results []besideResult, err error) {
	noted := false
	for _, t := range trials {
		tally, err := m.beside(ctx, t)
		if errors.Is(err, profiler.ErrNoAsync) {
			if !noted {
				fmt.Fprintf(m.out, "beside: the rows of async-profiler are left out: %v\n\n", err)
			}
			noted = true
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", t, err)
		}
		fmt.Fprintf(m.out, "%v: %d samples\n", t, tally.samples)
		results = addBeside(results, t, tally)
	}
	return results, nil
}

// addBeside adds a recording to the results of the trial's other recordings.
func addBeside(results []besideResult, t besideTrial, tally besideTally) []besideResult {
	for i := range results {
		if results[i].besideTrial.String() == t.String() {
			results[i].besideTally.add(tally)
			return results
		}
	}
	return append(results, besideResult{t, tally})
}

func besideOK(results []besideResult) bool {
	return !slices.ContainsFunc(results, func(r besideResult) bool { return r.contender == thisAgent && !r.accurate() })
}
