package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// helpAll is the flag that every verb with advanced flags has.
const helpAll = "help-all"

// groupKey annotates flags that only --help-all shows, with the heading of their group.
const groupKey = "group"

// Headings of advanced flags, in the order in which --help-all and docs/reference/flags.md show
// them.
const (
	groupBursts   = "Advanced: call engines (branch is not verified on hardware) and bursts"
	groupContexts = "Advanced: calling contexts without full stack walks"
	groupExact    = "Advanced: exact and extra counts"
)

var groups = []string{groupBursts, groupContexts, groupExact}

// advanced moves flags to a group that only --help-all shows.
func advanced(fs *pflag.FlagSet, group string, names ...string) {
	for _, name := range names {
		fs.Lookup(name).Annotations = map[string][]string{groupKey: {group}}
	}
}

// groupOf returns the group of a flag: "" for those that everybody needs.
func groupOf(f *pflag.Flag) string {
	if g := f.Annotations[groupKey]; len(g) > 0 {
		return g[0]
	}
	return ""
}

// hasAdvanced reports whether the set has flags that only --help-all shows.
func hasAdvanced(fs *pflag.FlagSet) (has bool) {
	fs.VisitAll(func(f *pflag.Flag) { has = has || groupOf(f) != "" })
	return has
}

// newFlags returns a flag set that prints usage and the flags that everybody needs when it meets
// -h.
func newFlags(verb, usage string, stderr io.Writer) *pflag.FlagSet {
	fs := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(stderr)
	fs.Usage = func() {
		if d, ok := stderr.(*definition); ok {
			d.usage, d.flags = usage, fs
			return
		}
		io.WriteString(stderr, usage+flagUsages(fs, false))
	}
	return fs
}

// A definition is what a verb says of itself. As the place for a verb's help it takes that instead
// of its text.
type definition struct {
	verb
	usage string
	flags *pflag.FlagSet
}

func (*definition) Write(b []byte) (int, error) { return len(b), nil }

// definitions are those of all verbs that the help shows, but help.
func definitions() (all []*definition) {
	for _, v := range verbs() {
		if v.summary == "" || v.name == "help" {
			continue
		}
		d := &definition{verb: v}
		_ = v.run(context.Background(), []string{"--help"}, io.Discard, d) // pflag.ErrHelp
		all = append(all, d)
	}
	return all
}

// parseFlags parses the arguments of a verb. It returns pflag.ErrHelp once it has printed the help.
func parseFlags(fs *pflag.FlagSet, usage string, args []string) error {

	all := fs.Bool(helpAll, false, "also show the advanced flags")
	fs.Lookup(helpAll).Hidden = true // the last line of the help names it
	if err := parse(fs, args); err != nil {
		return err
	}
	if *all {
		io.WriteString(fs.Output(), usage+flagUsages(fs, true))
		return pflag.ErrHelp
	}
	return nil
}

// parse parses the arguments of a verb. The error of an unknown flag says which one was most likely
// meant; a single letter is too short for a guess.
func parse(fs *pflag.FlagSet, args []string) error {
	err := fs.Parse(args)
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var known []string
	fs.VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := nearest(unknown.GetSpecifiedName(), known); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}

// renamed accepts flags under their former names as well, which the help does not show.
func renamed(fs *pflag.FlagSet, now map[string]string) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(now[name], name))
	})
}

// flagUsages is the help on flags, one line for each.
func flagUsages(fs *pflag.FlagSet, all bool) string {
	var b strings.Builder
	for i, group := range append([]string{""}, groups...) {
		flags := flagsOf(fs, group)
		if i > 0 && (!all || len(flags) == 0) {
			continue
		}
		if i > 0 {
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		width := 0
		for _, f := range flags {
			width = max(width, len(flagName(f)))
		}
		for _, f := range flags {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, flagName(f), flagText(f))
		}
	}
	if !all && hasAdvanced(fs) {
		fmt.Fprintf(&b, "\nRun 'vmprof-agent %s --%s' for the advanced flags.\n", fs.Name(), helpAll)
	}
	return b.String()
}

// flagsOf returns the flags of a group, in the order in which they were defined.
func flagsOf(fs *pflag.FlagSet, group string) (flags []*pflag.Flag) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && groupOf(f) == group {
			flags = append(flags, f)
		}
	})
	return flags
}

// flagText says what a flag does, with its default.
func flagText(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	if d := flagDefault(f); d != "" {
		text += " (default " + d + ")"
	}
	return text
}

// flagName is the left column of the help: "-p, --pid PID".
func flagName(f *pflag.Flag) string {
	name := "    --" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", --" + f.Name
	}
	operand, _ := pflag.UnquoteUsage(f)
	switch {
	case operand == "":
	case f.NoOptDefVal != "":
		name += "[=" + operand + "]"
	default:
		name += " " + operand
	}
	return name
}

// flagDefault is the default of a flag for people; "" if it is nothing, or the text says what
// happens.
func flagDefault(f *pflag.Flag) string {
	d := strings.Trim(f.DefValue, "[]")
	switch d {
	case "false", "0", "0s":
		return ""
	}
	return d
}

// A seconds is a flag for a duration. A number without a unit is seconds.
type seconds struct{ d *time.Duration }

func (s seconds) String() string {
	if s.d == nil {
		return ""
	}
	return s.d.String()
}

func (seconds) Type() string { return "duration" }

func (s seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if !(math.Abs(n) <= math.MaxInt64/float64(time.Second)/2) { // nor NaN
			return errors.New("too long")
		}
		*s.d = time.Duration(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration such as 30s, 5m or 10 (seconds)")
	}
	*s.d = d
	return nil
}

// unexpected is the error for an argument where none belongs. A number is most likely a process.
func unexpected(arg, remedy string) error {
	text := "unexpected argument " + arg
	if n, err := strconv.Atoi(arg); err == nil && n > 0 {
		return usageError(text + fmt.Sprintf("; to profile process %d use -p %d", n, n))
	}
	return usageError(text + remedy)
}
