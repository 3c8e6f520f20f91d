// Command vmprof-agent profiles managed runtimes on a Linux host from outside: see README.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/vmprof-agent/vmprof-agent/agent/view/program"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/advise"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/audit"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/probes"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/record"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/recordings"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/self"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/serve"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/top"
)

func main() {
	self.PaceCollector()
	// The first signal ends a verb in order, so that it still writes what it has; the second one
	// ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code: 0, 1 if it failed, 2 if it was not
// understood.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	v, args, err := choose(args)
	if err != nil {
		v.Run = func(context.Context, []string, io.Writer, io.Writer) error { return err }
	}
	return v.Exit(ctx, args, stdout, stderr)
}

// verbs lists them in the order of the help.
func verbs() []cli.Verb {
	return []cli.Verb{
		{Name: "record", Summary: "profile processes for some time and write a file", Run: record.Run},
		{Name: "top", Summary: "show live, in the terminal, where CPU time goes", Run: top.Run},
		{Name: "serve", Summary: "profile until stopped; serve metrics, profiles and pages", Run: serve.Run},
		{Name: "report", Summary: "show the hot methods, call tree, calls or events of a file", Run: recordings.Report},
		{Name: "compare", Summary: "say whether B is slower than A, and what differs", Run: recordings.Compare},
		{Name: "doctor", Summary: "check whether this machine can be profiled; print remedies", Run: doctor.Run},
		{Name: "audit", Summary: "time versions of a method; say which one is faster", Heading: "Expert",
			Run: audit.Run},
		{Name: "advise", Summary: "turn a profile into hints for the JVM or Go compiler", Run: advise.Run},
		{Name: "probes", Summary: "list the USDT probes of a process", Run: probes.Run},
		{Name: "completion", Summary: "print the completion script for bash, zsh or fish", Heading: "Other",
			Run: completion},
		{Name: "version", Summary: "print the version", Run: printVersion},
		{Name: "help", Summary: "show this help, or the help of a command: help record", Run: help},
		{Name: record.GateVerb, Run: record.Become},
		{Name: record.KeepVerb, Run: record.Keep},
		{Name: top.GuardVerb, Run: top.GuardTerminal},
		{Name: program.Verb, Run: serve.RunProgram},
		{Name: manVerb, Run: manPage},
	}
}

// choose finds the verb that the first argument names. It returns the arguments after it.
func choose(args []string) (cli.Verb, []string, error) {
	if len(args) == 0 {
		return cli.Verb{}, nil, cli.Misuse("missing command")
	}
	name := args[0]
	if name == "-h" || name == "--help" {
		name = "help"
	}
	if name == "--version" {
		name = "version"
	}
	for _, v := range verbs() {
		if v.Name == name {
			return v, args[1:], nil
		}
	}
	text := fmt.Sprintf("unknown command %q", name)
	if near := cli.Nearest(name, verbNames()); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return cli.Verb{}, nil, cli.Misuse(text)
}

// help prints the verbs, or the help of the verb that it is given.
func help(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && !slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		v, rest, err := choose(args)
		switch {
		case err != nil:
			return err
		case len(rest) > 0:
			return cli.Misuse("unexpected argument " + rest[0] + "; help takes one command")
		case v.Summary == "":
			return cli.Misuse(fmt.Sprintf("unknown command %q", v.Name))
		}
		return v.Run(ctx, []string{"--help"}, stdout, stdout)
	}
	var b strings.Builder
	b.WriteString("vmprof-agent profiles Java and Python programs from outside the process.\n\n")
	for _, v := range verbs() {
		if v.Heading != "" {
			fmt.Fprintf(&b, "\n%s:\n", v.Heading)
		}
		if v.Summary != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", v.Name, v.Summary)
		}
	}
	b.WriteString("\nRun 'vmprof-agent help NAME' for the flags of a command.\n")
	_, err := io.WriteString(stdout, b.String())
	return err
}

// verbNames lists the verbs that the help shows.
func verbNames() (names []string) {
	for _, v := range verbs() {
		if v.Summary != "" {
			names = append(names, v.Name)
		}
	}
	return names
}

// definitions are those of all verbs that the help shows, but help.
func definitions() (all []*cli.Definition) {
	for _, v := range verbs() {
		if v.Summary != "" && v.Name != "help" {
			all = append(all, cli.Define(v))
		}
	}
	return all
}
