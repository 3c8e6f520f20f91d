package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// HelpAll is the flag that every verb with advanced flags has.
const HelpAll = "help-all"

// groupKey annotates flags that only --help-all shows, with the heading of their group.
const groupKey = "group"

// Headings of advanced flags, in the order in which --help-all and docs/reference/flags.md show
// them.
const (
	GroupBursts   = "Advanced: call engines (branch is not verified on hardware) and bursts"
	GroupContexts = "Advanced: calling contexts without full stack walks"
	GroupExact    = "Advanced: exact and extra counts"
)

// Groups are these headings.
var Groups = []string{GroupBursts, GroupContexts, GroupExact}

// Advanced moves flags to a group that only --help-all shows.
func Advanced(fs *pflag.FlagSet, group string, names ...string) {
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

// HasAdvanced reports whether the set has flags that only --help-all shows.
func HasAdvanced(fs *pflag.FlagSet) (has bool) {
	fs.VisitAll(func(f *pflag.Flag) { has = has || groupOf(f) != "" })
	return has
}

// NewFlags returns a flag set that prints usage and the flags that everybody needs when it meets
// -h.
func NewFlags(verb, usage string, stderr io.Writer) *pflag.FlagSet {
	fs := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(stderr)
	fs.Usage = func() {
		if d, ok := stderr.(*Definition); ok {
			d.Usage, d.Flags = usage, fs
			return
		}
		io.WriteString(stderr, usage+flagUsages(fs, false))
	}
	return fs
}

// Parse parses the arguments of a verb. It returns pflag.ErrHelp once it has printed the help.
func Parse(fs *pflag.FlagSet, usage string, args []string) error {
	all := fs.Bool(HelpAll, false, "also show the advanced flags")
	fs.Lookup(HelpAll).Hidden = true // the last line of the help names it
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
	if near := Nearest(unknown.GetSpecifiedName(), known); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}

// Renamed accepts flags under their former names as well, which the help does not show.
func Renamed(fs *pflag.FlagSet, now map[string]string) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(now[name], name))
	})
}

// flagUsages is the help on flags, one line for each.
func flagUsages(fs *pflag.FlagSet, all bool) string {
	var b strings.Builder
	for i, group := range append([]string{""}, Groups...) {
		flags := FlagsOf(fs, group)
		if i > 0 && (!all || len(flags) == 0) {
			continue
		}
		if i > 0 {
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		width := 0
		for _, f := range flags {
			width = max(width, len(FlagName(f)))
		}
		for _, f := range flags {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, FlagName(f), FlagText(f))
		}
	}
	if !all && HasAdvanced(fs) {
		fmt.Fprintf(&b, "\nRun 'vmprof-agent %s --%s' for the advanced flags.\n", fs.Name(), HelpAll)
	}
	return b.String()
}

// FlagsOf returns the flags of a group, in the order in which they were defined.
func FlagsOf(fs *pflag.FlagSet, group string) (flags []*pflag.Flag) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && groupOf(f) == group {
			flags = append(flags, f)
		}
	})
	return flags
}

// FlagText says what a flag does, with its default.
func FlagText(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	if d := flagDefault(f); d != "" {
		text += " (default " + d + ")"
	}
	return text
}

// FlagName is the left column of the help: "-p, --pid PID".
func FlagName(f *pflag.Flag) string {
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

// Nearest returns the one of the known names that a misspelt one most likely means, "" if none is
// near.
func Nearest(name string, known []string) string {
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

// DidYouMean is the end of an error, or nothing. Names are those in memory and files of processes.
func DidYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	var names []string
	for _, name := range near {
		names = append(names, stored.Printable(name))
	}
	return "; did you mean " + strings.Join(names, ", ") + "?"
}
