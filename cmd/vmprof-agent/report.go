package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

const reportUsage = `Usage: vmprof-agent report [flags] FILE

Shows a stored pprof profile: the hot methods, or the calling context tree with
the samples of each context (s:) and of all below it (d:).

  vmprof-agent report vmprof.pb.gz                          # the 20 hottest methods
  vmprof-agent report -n 0 vmprof.pb.gz                     # all methods
  vmprof-agent report --view=tree vmprof.pb.gz              # contexts with 0.3% or more
  vmprof-agent report --view=tree --min-share=5 FILE        # with 5% or more
  vmprof-agent report --view=tree --width=0 FILE | less -S  # names in full

Flags:
`

// reportOptions are the flags of report.
type reportOptions struct {
	view func(io.Writer, *profile.Profile, *sink.ViewOptions) error
	opts sink.ViewOptions
	file string
}

func parseReport(args []string, stderr io.Writer) (*reportOptions, error) {
	o := reportOptions{opts: *sink.DefaultViewOptions()}
	fs := newFlags("report", reportUsage, stderr)
	view := fs.String("view", "methods", "what to show: methods or tree")
	fs.IntVarP(&o.opts.N, "number", "n", o.opts.N, "methods to show; 0 for all")
	fs.Float64Var(&o.opts.MinShare, "min-share", o.opts.MinShare, "contexts to show in the tree, in percent of all samples")
	fs.IntVar(&o.opts.Width, "width", o.opts.Width, "columns that lines should keep to; 0 for any number")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	switch *view {
	case "methods":
		o.view = sink.Methods
	case "tree":
		o.view = sink.Tree
	default:
		return nil, usageError(fmt.Sprintf("unknown view %q: choose methods or tree", *view))
	}
	switch {
	case fs.NArg() != 1:
		return nil, usageError("name one file to show, such as vmprof.pb.gz")
	case o.opts.N < 0, o.opts.Width < 0:
		return nil, usageError("-n and --width need a number of at least 0")
	case !(o.opts.MinShare >= 0 && o.opts.MinShare <= 100): // nor NaN
		return nil, usageError("--min-share needs a percentage from 0 to 100")
	}
	o.file = fs.Arg(0)
	return &o, nil
}

// report is the verb.
func report(_ context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseReport(args, stderr)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	p, err := sink.ReadFile(o.file)
	if err != nil {
		return err
	}
	if err := o.view(stdout, p, &o.opts); err != nil {
		return fmt.Errorf("show %s: %w", o.file, err)
	}
	return sink.Footer(stdout, p, o.opts.Width)
}
