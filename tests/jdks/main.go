// Command jdks records programs that know themselves on every JDK that Debian has, with every collector and other options of the
// JVM, and says which features of the agent hold where. It fails if a profile is wrong and does not say so.
//
//	go run ./tests/jdks                   # everything; about 40 minutes
//	go run ./tests/jdks -short            # what CI runs: JDK 11 and 21 as they come
//	go run ./tests/jdks -run 'JDK 2., .*ZGC'
//	go run ./tests/jdks -update           # also rewrites the tables in docs/jdks.md
//	go run ./tests/jdks -keep FILE        # goes on where an earlier run with that file ended
//
// It needs root. scripts/jdks fetches the JDKs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/jdks.md"

// An options is what the command line says.
type options struct {
	agent  string
	run    *regexp.Regexp
	short  bool
	update bool
	keep   string // a file
}

// errWrong says that a profile was wrong. What was printed says which.
var errWrong = errors.New("a profile is wrong, and does not say so")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "jdks:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("jdks", flag.ContinueOnError)
	flags.StringVar(&o.agent, "agent", "", "the built agent (default: build it)")
	flags.BoolVar(&o.short, "short", false, "two cells only")
	flags.BoolVar(&o.update, "update", false, "rewrite the tables in "+docs)
	flags.StringVar(&o.keep, "keep", "", "a `file` that keeps each result; cells that it has are not tried again")
	pattern := flags.String("run", "", "only the cells that match, as they are printed: JDK RELEASE, OPTIONS")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return options{}, fmt.Errorf("-run: %w", err)
	}
	if o.update && (o.short || *pattern != "" && o.keep == "") {
		return options{}, errors.New("-update needs all cells: leave out -short and -run, or add -keep")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	versions := []string{jvm.AllVersions}
	if o.short {
		versions = shortVersions
	}
	jdks, err := jvm.Fetch(ctx, versions...)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "vmprof-jdks-")
	if err != nil {
		return fmt.Errorf("create a directory for the agent: %w", err)
	}
	defer os.RemoveAll(dir)
	m := meter{agent: profiler.Agent{Path: o.agent}, dir: dir}
	if o.agent == "" {
		if m.agent, err = profiler.Build(ctx, dir); err != nil {
			return err
		}
	}
	earlier, err := readKept(o.keep)
	if err != nil {
		return err
	}
	results, err := m.tryAll(ctx, plan(jdks, o), o, earlier, out)
	if err != nil {
		return err
	}
	for _, t := range tables(results) {
		if err := t.Print(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
		if o.update {
			if err := report.Update(docs, t.name, t.Markdown()); err != nil {
				return err
			}
		}
	}
	if slices.ContainsFunc(results, result.wrong) {
		return errWrong
	}
	return nil
}

// tryAll tries the cells that the options ask for, unless earlier runs did, and prints what came of each.
func (m meter) tryAll(ctx context.Context, cells []cell, o options, earlier kept, out io.Writer) (results []result, err error) {
	for _, c := range cells {
		r, found := earlier.get(c)
		if !found && !o.run.MatchString(c.String()) {
			if o.update {
				results = append(results, result{cell: c, untried: true})
			}
			continue
		}
		if !found {
			r = m.try(ctx, c)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err := earlier.add(r); err != nil {
				return nil, err
			}
		}
		if err := r.print(out); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}
