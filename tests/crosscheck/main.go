// Command crosscheck profiles real programs that no other test runs, each from its start to its
// end, and holds the profile against what the kernel and the JVM say of the same run themselves:
//
//   - CPU time: what the kernel counted for the process (wait4, rusage);
//   - bytes allocated: heap sizes before and after each collection, in the JVM's log (-Xlog:gc);
//   - time stopped, and by which operation: the JVM's log (-Xlog:safepoint);
//   - page faults: what the kernel counted for the process (rusage);
//   - waits for monitors: JFR's events of all of them (jdk.JavaMonitorEnter), which is a truth if the profile has all, too;
//   - where the CPU time goes: JFR's samples (jdk.ExecutionSample). JFR samples Java code only, and in its own way: its
//     distribution stands beside the profile's, it is no truth. By the method whose code ran, both should be alike; by the innermost
//     method they are not, where C2 gave instructions a place in the source that they are not from. -controls shows which it is.
//
// Use:
//
//	go run ./tests/crosscheck               # all programs; three minutes
//	go run ./tests/crosscheck -run Derby
//	go run ./tests/crosscheck -run Derby -budget 50%   # if all waits are recorded, they are compared with JFR's
//	go run ./tests/crosscheck -short        # one program: what CI runs
//	go run ./tests/crosscheck -update       # also rewrites the table in docs/measurements/crosscheck.md
//	go run ./tests/crosscheck -controls     # what two profiles of one program differ by; two minutes
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// docs is the page with the table that -update rewrites, from the root of the repository.
const docs = "docs/measurements/crosscheck.md"

// errDisagrees says that a number of a profile is not what the kernel or the JVM says. The table
// has it.
var errDisagrees = errors.New("a profile disagrees with what the kernel or the JVM says of the same run")

func main() { harness.Main("crosscheck", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("crosscheck", "only the program that CI runs", docs)
	pattern := flags.String("run", "", "only programs whose name matches")
	budget := flags.String("budget", "", "the agent's --budget (default: the agent's own)")
	control := flags.Bool("controls", false,
		"run one program, Rhino unless -run names another, twice in each of several ways, and compare all profiles")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *control && *pattern == "" {
		wanted = regexp.MustCompile("^Rhino$")
	}
	if *control && (o.Short || *budget != "") {
		return errors.New("-controls runs at the default budget, and is no part of -short: leave out the others")
	}
	if o.Update && (o.Short || *pattern != "" || *budget != "") {
		return errors.New("-update needs all programs at the default budget: leave out -run, -short and -budget")
	}
	jdk, err := jvm.Oldest()
	if err != nil {
		return err
	}
	return o.WithAgent(ctx, func(built profiler.Agent, _ string) error {
		if *control {
			i := slices.IndexFunc(programs, func(p program) bool { return wanted.MatchString(p.name) })
			if i < 0 {
				return fmt.Errorf("no program matches %q", *pattern)
			}
			return runControls(ctx, out, built, jdk, programs[i], o.Update)
		}
		var extra []string
		if *budget != "" {
			extra = []string{"--budget", *budget}
		}
		times := 1.0
		if o.Short {
			times = 2 // what is tried with every change must not fail by chance
		}
		var results []result
		for _, p := range programs {
			if !wanted.MatchString(p.name) || o.Short && !p.short {
				continue
			}
			checked, err := check(ctx, built, jdk, p, extra...)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			for _, r := range checked {
				fmt.Fprintln(out, r)
			}
			results = append(results, checked...)
		}
		if o.Update {
			table := tabulate(results)
			if err := report.Update(docs, "crosscheck", table.Markdown()); err != nil {
				return err
			}
		}
		for _, r := range results {
			if !r.agreesAt(times) {
				return errDisagrees
			}
		}
		return nil
	})
}
