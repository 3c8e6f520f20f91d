// Command vmprof-agent profiles managed runtimes on a Linux host from outside: see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
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
	if err == nil {
		err = v.run(ctx, args, stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp): // whose text is out already
		return 0
	case errors.Is(err, errReported):
		return 1
	}
	fmt.Fprintf(stderr, "%v: %v\n", v, err)
	if !isUsage(err) {
		return 1
	}
	fmt.Fprintf(stderr, "Run '%v -h' for help.\n", v)
	return 2
}

// A verb is one thing that the program does. It writes results to stdout and everything else to
// stderr.
type verb struct {
	name    string
	summary string // one line of help; empty hides the verb
	heading string // heading in the help above this verb; empty if it stands below the one before
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
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

// String is how the user calls it.
func (v verb) String() string { return strings.TrimSpace("vmprof-agent " + v.name) }

// errReported ends a verb with exit code 1 when its output says why already.
var errReported = errors.New("the output says why")

// A usageError is an argument that makes no sense. It ends the program with exit code 2.
type usageError string

func (e usageError) Error() string { return string(e) }

// isUsage reports whether the user has to change the command line.
func isUsage(err error) bool {
	var (
		usage    usageError
		unknown  *pflag.NotExistError
		required *pflag.ValueRequiredError
		value    *pflag.InvalidValueError
		syntax   *pflag.InvalidSyntaxError
	)
	return errors.As(err, &usage) || errors.As(err, &unknown) || errors.As(err, &required) ||
		errors.As(err, &value) || errors.As(err, &syntax)
}

// choose finds the verb that the first argument names. It returns the arguments after it.
func choose(args []string) (verb, []string, error) {
	if len(args) == 0 {
		return verb{}, nil, usageError("missing command")
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
	return verb{}, nil, usageError(text)
}

// help prints the verbs, or the help of the verb that it is given.
func help(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && !slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		v, rest, err := choose(args)
		switch {
		case err != nil:
			return err
		case len(rest) > 0:
			return usageError("unexpected argument " + rest[0] + "; help takes one command")
		case v.summary == "":
			return usageError(fmt.Sprintf("unknown command %q", v.name))
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

// nearest returns the one of the known names that a misspelt one most likely means, "" if none is
// near.
func nearest(name string, known []string) string {
	const lettersPerEdit = 3 // "foo" is not "top"
	best, at := "", math.MaxInt
	for _, k := range known {
		d, most := stored.Edits(name, k), (max(len(name), len(k))+1)/lettersPerEdit
		if d <= most && d < at {
			best, at = k, d
		}
	}
	return best
}
