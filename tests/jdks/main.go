// Command jdks records programs that know themselves on every JDK that Debian has, with every
// collector and other options of the JVM, and says which features of the agent hold where. It fails
// if a profile is wrong and does not say so.
//
//	go run ./tests/jdks                   # everything; about an hour
//	go run ./tests/jdks -short            # what CI runs: JDK 11 and 21 as they come
//	go run ./tests/jdks -run 'JDK 2., .*ZGC'
//	go run ./tests/jdks -update           # also rewrites the tables in docs/reference/jdks.md and docs/measurements/jdks.md
//	go run ./tests/jdks -keep FILE        # goes on where an earlier run with that file ended
//	go run ./tests/jdks -waits -update    # only waits by cause, and their tables
//
// It needs root. scripts/jdks fetches the JDKs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the directory of the pages whose tables -update rewrites, from the root of the repository:
// docs/reference/jdks.md and docs/measurements/jdks.md.
const docs = "docs"

// An options is what the command line says.
type options struct {
	harness.Options
	run   *regexp.Regexp
	keep  string // a file
	waits bool   // only waits by cause
}

// errWrong says that a profile was wrong. What was printed says which.
var errWrong = errors.New("a profile is wrong, and does not say so")

func main() { harness.Main("jdks", run) }

func parse(args []string) (options, error) {
	var o options
	flags := o.Flags("jdks", "two cells only", docs)
	flags.StringVar(&o.keep, "keep", "", "a `file` that keeps each result; cells that it has are not tried again")
	flags.BoolVar(&o.waits, "waits", false, "only waits by cause; -update rewrites their tables and no others")
	pattern := flags.String("run", "", "only the cells that match, as they are printed: JDK RELEASE, OPTIONS")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return options{}, fmt.Errorf("-run: %w", err)
	}
	if o.Update && (o.Short || *pattern != "" && o.keep == "") {
		return options{}, errors.New("-update needs all cells: leave out -short and -run, or add -keep")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	versions := []string{jvm.AllVersions}
	if o.Short {
		versions = shortVersions
	}
	jdks, err := jvm.Fetch(ctx, versions...)
	if err != nil {
		return err
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		earlier, err := readKept(o.keep)
		if err != nil {
			return err
		}
		m := meter{agent: agent, dir: dir, short: o.Short, waits: o.waits}
		results, err := m.tryAll(ctx, plan(jdks, o), o, earlier, out)
		if err != nil {
			return err
		}
		tables := tables(results, o.waits)
		if err := harness.Print(out, tables); err != nil {
			return err
		}
		if o.Update {
			if err := harness.Update(docs, tables); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(results, result.wrong) {
			return errWrong
		}
		return nil
	})
}

// tryAll tries the cells that the options ask for, unless earlier runs did, and prints what came of
// each.
func (m meter) tryAll(
	ctx context.Context, cells []cell, o options, earlier kept, out io.Writer,
) (results []result, err error) {
	for _, c := range cells {
		r, found := earlier.get(c)
		if !found && !o.run.MatchString(c.String()) {
			if o.Update {
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
