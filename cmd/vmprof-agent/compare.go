package main

import (
	"context"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/report"
)

const compareUsage = `Usage: vmprof-agent compare [flags] A B
       vmprof-agent compare [flags] FILE

Compares two pprof profiles. Prints their overlap (the sum of the smaller of
both shares, from 0 to 100), their correlation (up to 1), and the largest
differences. It compares shares, so the recordings may differ in length.

With one FILE from record --window, shows how well each window predicts the
next (the precision of the profile), or compares two of its windows.

  vmprof-agent compare A.pb.gz B.pb.gz                 # hot methods
  vmprof-agent compare --by=edge A.pb.gz B.pb.gz       # who calls whom
  vmprof-agent compare --by=context A.pb.gz B.pb.gz    # whole stacks
  vmprof-agent compare --by=class A.pb.gz B.pb.gz      # of allocations or locks
  vmprof-agent compare --by=edge --ignore-sites A B    # merge call sites
  vmprof-agent compare --by=edge --engine=page A B     # one engine of several
  vmprof-agent compare --sample-type=samples A B       # CPU time, not calls
  vmprof-agent compare windows.pb.gz                   # window by window
  vmprof-agent compare --windows=2,5 windows.pb.gz     # two windows
  vmprof-agent compare -n 0 --width=0 A B | less -S    # all differences

Flags:
`

// compareOptions are the flags of compare.
type compareOptions struct {
	opts    report.CompareOptions
	files   []string // two, or one with windows
	windows []int    // two of the one file; none for all
}

func parseCompare(args []string, stderr io.Writer) (*compareOptions, error) {
	shown := report.DefaultViewOptions()
	o := compareOptions{opts: report.CompareOptions{N: shown.N, Width: shown.Width}}
	fs := newFlags("compare", compareUsage, stderr)
	by := fs.String("by", report.ByMethod.String(), "`KEY`: method, edge, context or class")
	fs.StringVar(&o.opts.SampleType, "sample-type", "", "compare `TYPE`, such as calls (default: common to both)")
	fs.StringVar(&o.opts.Engine, "engine", "", "compare the calls of `ENGINE` (default: the only one)")
	fs.BoolVar(&o.opts.IgnoreSites, "ignore-sites", false, "edges: merge all call sites between two methods")
	fs.IntSliceVar(&o.windows, "windows", nil, "compare windows `N,M` of one file (default: neighbours)")
	fs.IntVarP(&o.opts.N, "number", "n", o.opts.N, "show `N` differences or pairs; 0 for all")
	fs.IntVar(&o.opts.Width, "width", o.opts.Width, "limit lines to `N` columns; 0 for no limit")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if o.opts.By, err = report.ParseBy(*by); err != nil {
		return nil, usageError(err.Error())
	}
	o.files = fs.Args()
	precision := len(o.files) == 1 && !fs.Changed("windows")
	switch {
	case len(o.files) != 1 && len(o.files) != 2:
		return nil, usageError("name two files, or one file with windows (record --window)")
	case fs.Changed("windows") && len(o.files) != 1:
		return nil, usageError("--windows is for one file: remove the other file")
	case fs.Changed("windows") && (len(o.windows) != 2 || min(o.windows[0], o.windows[1]) < 1):
		return nil, usageError("--windows needs the numbers of two windows, such as 2,5")
	case precision && fs.Changed("by"):
		return nil, usageError("--by is for two profiles: name two files, or --windows=1,2")
	case o.opts.N < 0, o.opts.Width < 0:
		return nil, usageError("-n and --width need a number of at least 0")
	case o.opts.IgnoreSites && o.opts.By != report.ByEdge && !precision:
		return nil, usageError("--ignore-sites is for --by=edge")
	}
	return &o, nil
}

// compare is the verb.
func compare(_ context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseCompare(args, stderr)
	if err != nil {
		return err
	}
	var sides []report.Named
	for _, file := range o.files {
		p, err := report.ReadFile(file)
		if err != nil {
			return err
		}
		sides = append(sides, report.Named{Name: file, Profile: p})
	}
	switch {
	case len(o.windows) > 0:
		if sides, err = windowsOf(sides[0], o.windows); err == nil {
			err = report.Compare(stdout, sides[0], sides[1], &o.opts)
		}
	case len(sides) == 1:
		err = report.CompareWindows(stdout, sides[0], &o.opts)
	default:
		err = report.Compare(stdout, sides[0], sides[1], &o.opts)
	}
	if err != nil {
		return fmt.Errorf("compare profiles: %w", err)
	}
	return nil
}

// windowsOf returns some windows of a file as profiles of their own.
func windowsOf(file report.Named, numbers []int) (windows []report.Named, err error) {
	for _, n := range numbers {
		p, err := report.WindowOf(file.Profile, int64(n))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		windows = append(windows, report.Named{Name: fmt.Sprintf("%s, window %d", file.Name, n), Profile: p})
	}
	return windows, nil
}
