// Command advise measures what the hints of advise --for=hotspot bring: in two guests of which it
// is known that hints pay, and in real programs. A process is recorded without hints; then JVMs
// with the hints, without them, and without them a second time (the control) work in turns.
//
//	go run ./tests/advise                     # everything; half an hour
//	go run ./tests/advise -run '^guests'
//	go run ./tests/advise -run '^Xalan' -update
//	go run ./tests/advise -update             # also rewrites the tables in docs/measurements/inlining-hints.md
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/view/advise/hotspot"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/measurements/inlining-hints.md"

// errMissed says that hints which are known to pay do not.
var errMissed = errors.New("a guest is not as much faster with the hints as it is known to be")

// A lab is what the sections share.
type lab struct {
	agent profiler.Agent
	jdks  []jvm.JDK
	dir   string // directory of files that JVMs read
	out   io.Writer
	short bool
}

func main() { harness.Main("advise", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("advise", "fewer rounds", docs)
	pattern := flags.String("run", "", "only sections and trials whose names match")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Short && o.Update {
		return errors.New("-update needs all rounds: leave out -short")
	}
	chosen := harness.Choice{Short: o.Short}
	if *pattern != "" {
		var err error
		if chosen.Run, err = regexp.Compile(*pattern); err != nil {
			return fmt.Errorf("-run: %w", err)
		}
	}
	jdks, err := jvm.Find(jvm.Root)
	if err != nil {
		return err
	}
	if len(jdks) == 0 {
		return jvm.ErrNoJDK
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		page := ""
		if o.Update {
			page = docs
		}
		l := lab{agent: agent, jdks: jdks, dir: dir, out: out, short: o.Short}
		failed, err := harness.Run(ctx, out, l, sections(jdks), chosen, page)
		if err == nil && len(failed) > 0 {
			err = fmt.Errorf("%w: %s", errMissed, strings.Join(failed, ", "))
		}
		return err
	})
}

// sections are all measurements, in the order of the documentation.
func sections(jdks []jvm.JDK) []harness.Section[lab] {
	list := []harness.Section[lab]{{
		Name: "guests", Markers: []string{"advise-guests"}, Aim: fmt.Sprintf("%.1f times as fast", aim),
		Plan: planGuests(jdks),
	}}
	for _, program := range programs {
		list = append(list, harness.Section[lab]{Name: program, Markers: []string{marker(program)},
			Aim: "none: the table says what was gained", Plan: planProgram(program)})
	}
	return list
}

// hints are the JVM's flags for some advice. What they refer to is written to a file of that name.
func (l lab) hints(name string, advice ...hotspot.Advice) ([]string, error) {
	plan := hotspot.Plan{Advice: advice}
	flags := plan.Flags()
	if plan.HasMethods() {
		path := filepath.Join(l.dir, name+".json")
		if err := os.WriteFile(path, plan.Directives(), 0o644); err != nil {
			return nil, fmt.Errorf("write hints: %w", err)
		}
		flags = append(flags, "-XX:+UnlockDiagnosticVMOptions", "-XX:CompilerDirectivesFile="+path)
	}
	return flags, nil
}

// record records CPU time and calls of a process while it works.
func (l lab) record(ctx context.Context, pid int, work func() error) (*hotspot.Plan, error) {
	recording, err := l.agent.While(ctx, profiler.Options{PID: pid, Extra: []string{"-e", "cpu,calls"}},
		(*profiler.AgentRun).WaitSampling, func(*profiler.AgentRun) error { return work() })
	if err != nil {
		return nil, err
	}
	return hotspot.Advise(recording.Profile, hotspot.Options{})
}

// A side is what a JVM in a measurement is.
type side int

const (
	plain   side = iota // no hints
	control             // no hints either
	hinted              // the first piece of advice, or all of it; further pieces follow
)
