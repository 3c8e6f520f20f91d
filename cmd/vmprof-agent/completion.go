package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/advise"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/recordings"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
)

const completionUsage = `Usage: vmprof-agent completion SHELL

Prints a script that completes commands, flags and their values in SHELL: bash,
zsh or fish.

  vmprof-agent completion bash > /etc/bash_completion.d/vmprof-agent
  vmprof-agent completion zsh > "${fpath[1]}/_vmprof-agent"
  vmprof-agent completion fish > ~/.config/fish/completions/vmprof-agent.fish
  source <(vmprof-agent completion bash)      # in this shell only
`

// shells are those that have completions.
var shells = []string{"bash", "fish", "zsh"}

// completion is the verb.
func completion(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := cli.NewFlags("completion", completionUsage, stderr)
	if err := cli.Parse(fs, completionUsage, args); err != nil {
		return err
	}
	if fs.NArg() != 1 {
		return cli.Misuse("name one shell: bash, zsh or fish")
	}
	switch fs.Arg(0) {
	case "bash":
		return bashCompletion(stdout, definitions())
	case "fish":
		return fishCompletion(stdout, definitions())
	case "zsh":
		return zshCompletion(stdout, definitions())
	}
	return cli.Misuse(fmt.Sprintf("unknown shell %q: choose bash, zsh or fish", fs.Arg(0)))
}

// A valueKind is what a flag's value is.
type valueKind int

const (
	noValue  valueKind = iota // the flag takes none, or only after =
	anyValue                  // nothing is known of it
	oneOf                     // one of some words
	listOfThem
	fileName
	processID
)

// valueOf is what may follow a flag, and the words that it may be.
func valueOf(verb string, f *pflag.Flag) (valueKind, []string) {
	switch operand, _ := pflag.UnquoteUsage(f); f.Name {
	case "pid":
		return processID, nil
	case "event":
		return listOfThem, sampling.Names()
	case "view":
		return oneOf, slices.Sorted(maps.Keys(recordings.Views))
	case "engine":
		if verb == "compare" {
			return anyValue, nil
		}
		return oneOf, append([]string{calls.Auto}, engines.Names()...)
	case "context":
		return oneOf, []string{"walk", "partial", "chain"}
	case "clock":
		return oneOf, []string{"auto", "tick", "cpu-clock"}
	case "breakpoints":
		return oneOf, []string{"auto", "always", "never"}
	case "exact":
		return noValue, nil
	case "by":
		return oneOf, []string{"method", "edge", "context", "class", "total", "service"}
	case "for":
		return oneOf, advise.Names()
	case "until":
		return oneOf, []string{"decided"}
	case "log.format":
		return oneOf, []string{"text", "json"}
	default:
		switch {
		case operand == "" || f.NoOptDefVal != "":
			return noValue, nil
		case operand == "FILE" || operand == "DIR" || operand == "PATH":
			return fileName, nil
		}
	}
	return anyValue, nil
}

// argumentsOf are the words that the arguments of a verb may be; nil if they are files, or a
// command.
func argumentsOf(verb string) []string {
	switch verb {
	case "completion":
		return shells
	case "help":
		var names []string
		for _, d := range definitions() {
			names = append(names, d.Name)
		}
		return names
	}
	return nil
}

// flagsShown are the flags of a verb in the order of its help, and help itself.
func flagsShown(d *cli.Definition) (list []*pflag.Flag) {
	shown := func(f *pflag.Flag) {
		if !f.Hidden {
			list = append(list, f)
		}
	}
	d.Flags.VisitAll(shown)
	var help pflag.FlagSet
	help.BoolP("help", "h", false, "show the help")
	if cli.HasAdvanced(d.Flags) {
		help.Bool(cli.HelpAll, false, "show the help with the advanced flags")
	}
	help.VisitAll(shown)
	return list
}

// spellings are a flag as it is typed: --pid and -p.
func spellings(f *pflag.Flag) []string {
	list := []string{"--" + f.Name}
	if f.Shorthand != "" {
		list = append(list, "-"+f.Shorthand)
	}
	return list
}

// listJVMs prints the pids of the JVMs that this user sees.
const listJVMs = "pgrep -x java"

func bashCompletion(w io.Writer, all []*cli.Definition) error {
	var b strings.Builder
	var names []string
	for _, d := range all {
		names = append(names, d.Name)
	}
	fmt.Fprintf(&b, `# bash completion of vmprof-agent, made by: vmprof-agent completion bash
_vmprof_agent() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} word i
	COMPREPLY=()
	# --flag=value is three words.
	if [[ $cur == = ]]; then
		cur=
	elif [[ $prev == = ]]; then
		prev=${COMP_WORDS[COMP_CWORD-2]}
	fi
	if (( COMP_CWORD == 1 )); then
		COMPREPLY=($(compgen -W %q -- "$cur"))
		return
	fi
	if [[ $verb == record ]]; then # the command
		for (( i = 2; i < COMP_CWORD; i++ )); do
			if [[ ${COMP_WORDS[i]} == -- ]]; then
				COMPREPLY=($(compgen -c -f -- "$cur"))
				return
			fi
		done
	fi
	case "$verb $prev" in
`, strings.Join(append(slices.Clone(names), "help"), " "))
	for _, d := range all {
		for _, f := range flagsShown(d) {
			kind, words := valueOf(d.Name, f)
			if kind == noValue {
				continue
			}
			var patterns []string
			for _, s := range spellings(f) {
				patterns = append(patterns, fmt.Sprintf("%q", d.Name+" "+s))
			}
			fmt.Fprintf(&b, "\t%s) ", strings.Join(patterns, "|"))
			switch kind {
			case oneOf:
				fmt.Fprintf(&b, `COMPREPLY=($(compgen -W %q -- "$cur"))`, strings.Join(words, " "))
			case listOfThem:
				fmt.Fprintf(&b, `word=${cur##*,}; COMPREPLY=($(compgen -P "${cur%%"$word"}" -W %q -- "$word"))`,
					strings.Join(words, " "))
			case processID:
				fmt.Fprintf(&b, `COMPREPLY=($(compgen -W "$(%s 2>/dev/null)" -- "$cur"))`, listJVMs)
			case fileName:
				b.WriteString(`compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))`)
			default:
				b.WriteString(":")
			}
			b.WriteString("; return ;;\n")
		}
	}
	b.WriteString("\tesac\n\tif [[ $cur == -* ]]; then\n\t\tcase $verb in\n")
	for _, d := range all {
		var words []string
		for _, f := range flagsShown(d) {
			words = append(words, spellings(f)...)
		}
		fmt.Fprintf(&b, "\t\t%s) COMPREPLY=($(compgen -W %q -- \"$cur\")) ;;\n", d.Name, strings.Join(words, " "))
	}
	b.WriteString("\t\tesac\n\t\treturn\n\tfi\n\tcase $verb in\n")
	for _, name := range append(names, "help") {
		if words := argumentsOf(name); words != nil {
			fmt.Fprintf(&b, "\t%s) COMPREPLY=($(compgen -W %q -- \"$cur\")) ;;\n", name, strings.Join(words, " "))
		}
	}
	b.WriteString("\treport|compare) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\")) " +
		";;\n\tesac\n}\ncomplete -F _vmprof_agent vmprof-agent\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// zshText makes a text fit for a specification of zsh in single quotes.
func zshText(text string) string {
	return strings.NewReplacer("'", `'\''`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}

func zshCompletion(w io.Writer, all []*cli.Definition) error {
	var b strings.Builder
	b.WriteString("#compdef vmprof-agent\n# zsh completion of vmprof-agent, made by: vmprof-agent completion " +
		"zsh\n_vmprof_agent_jvms() { compadd \"$@\" -- ${(f)\"$(" + listJVMs +
		" 2>/dev/null)\"} }\n_vmprof-agent() {\n\tlocal -a verbs\n\tverbs=(\n")
	for _, d := range all {
		fmt.Fprintf(&b, "\t\t'%s:%s'\n", d.Name, zshText(d.Summary))
	}
	b.WriteString("\t\t'help:show the help of a command'\n\t)\n\tif (( CURRENT == 2 )); then\n\t\t_describe command " +
		"verbs\n\t\treturn\n\tfi\n\tshift words\n\t(( CURRENT-- ))\n\tcase $words[1] in\n")
	for _, d := range all {
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments -s", d.Name)
		for _, f := range flagsShown(d) {
			kind, words := valueOf(d.Name, f)
			operand, text := pflag.UnquoteUsage(f)
			action := ""
			switch kind {
			case oneOf:
				action = fmt.Sprintf(":%s:(%s)", operand, strings.Join(words, " "))
			case listOfThem:
				action = fmt.Sprintf(":%s:_values -s , %s %s", operand, operand, strings.Join(words, " "))
			case processID:
				action = fmt.Sprintf(":%s:_vmprof_agent_jvms", operand)
			case fileName:
				action = fmt.Sprintf(":%s:_files", operand)
			case anyValue:
				action = fmt.Sprintf(":%s: ", operand)
			}
			equals := ""
			if action != "" {
				equals = "="
			}
			for _, s := range spellings(f) {
				sign := equals
				if !strings.HasPrefix(s, "--") && equals != "" {
					sign = "+"
				}
				fmt.Fprintf(&b, " \\\n\t\t\t'*%s%s[%s]%s'", s, sign, zshText(text), action)
			}
		}
		switch words := argumentsOf(d.Name); {
		case words != nil:
			fmt.Fprintf(&b, " \\\n\t\t\t'1: :(%s)'", strings.Join(words, " "))
		case d.Name == "record":
			b.WriteString(" \\\n\t\t\t'*::command:_normal'")
		case d.Name == "report" || d.Name == "compare":
			b.WriteString(" \\\n\t\t\t'*:file:_files'")
		}
		b.WriteString("\n\t\t;;\n")
	}
	fmt.Fprintf(&b, "\thelp) _arguments '1: :(%s)' ;;\n\tesac\n}\nif [ \"$funcstack[1]\" = _vmprof-agent ]; "+
		"then\n\t_vmprof-agent \"$@\"\nelse\n\tcompdef _vmprof-agent vmprof-agent\nfi\n",
		strings.Join(argumentsOf("help"), " "))
	_, err := io.WriteString(w, b.String())
	return err
}

// fishText is a text in single quotes of fish.
func fishText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

func fishCompletion(w io.Writer, all []*cli.Definition) error {
	var b strings.Builder
	b.WriteString("# fish completion of vmprof-agent, made by: vmprof-agent completion fish\ncomplete -c " +
		"vmprof-agent -f\n")
	for _, d := range all {
		fmt.Fprintf(&b, "complete -c vmprof-agent -n __fish_use_subcommand -a %s -d %s\n", d.Name, fishText(d.Summary))
	}
	b.WriteString("complete -c vmprof-agent -n __fish_use_subcommand -a help -d 'show the help of a command'\n")
	for _, d := range all {
		in := fmt.Sprintf("complete -c vmprof-agent -n '__fish_seen_subcommand_from %s'", d.Name)
		for _, f := range flagsShown(d) {
			kind, words := valueOf(d.Name, f)
			_, text := pflag.UnquoteUsage(f)
			line := in
			if f.Shorthand != "" {
				line += " -s " + f.Shorthand
			}
			line += " -l " + f.Name
			switch kind {
			case oneOf:
				line += " -x -a " + fishText(strings.Join(words, " "))
			case listOfThem:
				line += " -x -a " + fishText("(__fish_append , "+strings.Join(words, " ")+")")
			case processID:
				line += " -x -a " + fishText("("+listJVMs+" 2>/dev/null)")
			case fileName:
				line += " -r -F"
			case anyValue:
				line += " -x"
			}
			fmt.Fprintf(&b, "%s -d %s\n", line, fishText(text))
		}
		switch words := argumentsOf(d.Name); {
		case words != nil:
			fmt.Fprintf(&b, "%s -a %s\n", in, fishText(strings.Join(words, " ")))
		case d.Name == "record" || d.Name == "report" || d.Name == "compare":
			fmt.Fprintf(&b, "%s -F\n", in)
		}
	}
	fmt.Fprintf(&b, "complete -c vmprof-agent -n '__fish_seen_subcommand_from help' -a %s\n",
		fishText(strings.Join(argumentsOf("help"), " ")))
	_, err := io.WriteString(w, b.String())
	return err
}
