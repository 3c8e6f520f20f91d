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
)

func main() {
	paceCollector()
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
		v.run = func(context.Context, []string, io.Writer, io.Writer) error { return err }
	}
	return v.exit(ctx, args, stdout, stderr)
}

// verbs lists them in the order of the help.
func verbs() []verb {
	return []verb{
		{"record", "profile processes for some time and write a file", "", record},
		{"top", "show live, in the terminal, where CPU time goes", "", topVerb},
		{"serve", "profile until stopped; serve metrics, profiles and pages", "", serve},
		{"report", "show the hot methods, call tree, calls or events of a file", "", showReport},
		{"compare", "say whether B is slower than A, and what differs", "", compareVerb},
		{"doctor", "check whether this machine can be profiled; print remedies", "", doctorVerb},
		{"audit", "time versions of a method; say which one is faster", "Expert", auditVerb},
		{"advise", "turn a profile into hints for the JVM or Go compiler", "", advise},
		{"probes", "list the USDT probes of a process", "", probes},
		{"completion", "print the completion script for bash, zsh or fish", "Other", completion},
		{"version", "print the version", "", printVersion},
		{"help", "show this help, or the help of a command: help record", "", help},
		{gateVerb, "", "", become},
		{keepVerb, "", "", keep},
		{guardVerb, "", "", guardTerminal},
		{program.Verb, "", "", runWindows},
		{manVerb, "", "", manPage},
	}
}

// choose finds the verb that the first argument names. It returns the arguments after it.
func choose(args []string) (verb, []string, error) {
	if len(args) == 0 {
		return verb{}, nil, misuse("missing command")
	}
	name := args[0]
	if name == "-h" || name == "--help" {
		name = "help"
	}
	if name == "--version" {
		name = "version"
	}
	for _, v := range verbs() {
		if v.name == name {
			return v, args[1:], nil
		}
	}
	text := fmt.Sprintf("unknown command %q", name)
	if near := nearest(name, verbNames()); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	}
	return verb{}, nil, misuse(text)
}

// help prints the verbs, or the help of the verb that it is given.
func help(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && !slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		v, rest, err := choose(args)
		switch {
		case err != nil:
			return err
		case len(rest) > 0:
			return misuse("unexpected argument " + rest[0] + "; help takes one command")
		case v.summary == "":
			return misuse(fmt.Sprintf("unknown command %q", v.name))
		}
		return v.run(ctx, []string{"--help"}, stdout, stdout)
	}
	var b strings.Builder
	b.WriteString("vmprof-agent profiles the Java programs of a machine from outside the JVMs.\n\n")
	for _, v := range verbs() {
		if v.heading != "" {
			fmt.Fprintf(&b, "\n%s:\n", v.heading)
		}
		if v.summary != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", v.name, v.summary)
		}
	}
	b.WriteString("\nRun 'vmprof-agent help NAME' for the flags of a command.\n")
	_, err := io.WriteString(stdout, b.String())
	return err
}

// verbNames lists the verbs that the help shows.
func verbNames() (names []string) {
	for _, v := range verbs() {
		if v.summary != "" {
			names = append(names, v.name)
		}
	}
	return names
}

// definitions are those of all verbs that the help shows, but help.
func definitions() (all []*definition) {
	for _, v := range verbs() {
		if v.summary != "" && v.name != "help" {
			all = append(all, define(v))
		}
	}
	return all
}
