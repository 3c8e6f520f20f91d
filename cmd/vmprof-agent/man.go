package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/version"
)

// manVerb is the hidden verb that prints the manual page: make man.
const manVerb = "man"

// manPage prints the manual page vmprof-agent(1), made of what the verbs say of themselves.
func manPage(_ context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 {
		return cli.Misuse("unexpected argument " + args[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".TH VMPROF-AGENT 1 \"\" \"vmprof-agent %s\" \"User Commands\"\n", roff(version.Get().Version))
	b.WriteString(".SH NAME\nvmprof\\-agent \\- profiles Java and Python programs from outside the process\n.SH " +
		"SYNOPSIS\n")
	all := definitions()
	for _, d := range all {
		for line := range strings.Lines(d.Usage) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(line, "Usage:")), "vmprof-agent ")
			if !ok {
				break
			}
			fmt.Fprintf(&b, ".br\n\\fBvmprof\\-agent %s\\fR %s\n", roff(d.Name),
				roff(strings.TrimPrefix(strings.TrimPrefix(rest, d.Name), " ")))
		}
	}
	b.WriteString(".SH COMMANDS\n")
	for _, d := range all {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(d.Name), roff(d.Summary))
	}
	for _, d := range all {
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(d.Name)))
		_, text, _ := strings.Cut(d.Usage, "\n\n")
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(strings.TrimSpace(strings.TrimSuffix(text, "Flags:\n"))))
		for _, group := range append([]string{""}, cli.Groups...) {
			flags := cli.FlagsOf(d.Flags, group)
			if len(flags) == 0 {
				continue
			}
			if group == "" {
				group = "Flags"
			}
			fmt.Fprintf(&b, ".SS %s\n", roff(group))
			for _, f := range flags {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(strings.TrimSpace(cli.FlagName(f))),
					roff(cli.FlagText(f)))
			}
		}
	}
	b.WriteString(".SH EXIT STATUS\n0 if the command did what it was asked for, 1 if it failed, 2 if its arguments " +
		"make no sense.\n")
	_, err := io.WriteString(stdout, b.String())
	return err
}

// roff makes text fit for a manual page: no line of it is a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
