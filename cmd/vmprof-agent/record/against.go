package record

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/recordings"
)

// againstFlags have a recording compared with an earlier one.
type againstFlags struct {
	against string // a recording, or a directory of several; empty: nothing is compared
	per     string
	opts    compare.AuditOptions
	earlier []compare.Named
}

func (a *againstFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&a.against, "against", "", "compare the result with `FILE`, an earlier recording")
	fs.StringVar(&a.per, "per", defaultPer, "cost per `UNIT`, as in compare")
}

// check reads the earlier recording, so that what cannot be compared fails before anything is
// recorded. A recording that is compared has windows of a second unless others are asked for.
func (a *againstFlags) check(fs *pflag.FlagSet, o *recordOptions) error {
	if a.against == "" {
		if fs.Changed("per") {
			return cli.Misuse("--per needs --against")
		}
		return nil
	}
	if len(o.parts()) > 1 {
		return cli.Misuse("--against compares one file: record events one at a time, or compare the files later")
	}
	if o.window == 0 {
		o.window = time.Second
	}
	shown := layout.DefaultOptions()
	a.opts.N, a.opts.Width = 10, shown.Width
	var err error
	if a.opts.Per, err = compare.ParsePer(a.per); err != nil {
		return cli.Misuse(err.Error())
	}
	a.earlier, err = recordings.Read(a.against)
	if err != nil {
		return err
	}
	if len(a.earlier) == 1 && !compare.HasWindows(a.earlier[0].Profile) {
		return fmt.Errorf("%s has no windows to compare: record it with --window=1", a.against)
	}
	return nil
}

// compare writes how the recording differs from the earlier one.
func (a *againstFlags) compare(w io.Writer, out output) error {
	if a.against == "" {
		return nil
	}
	fmt.Fprintf(w, "\nA: %s; B: %s\n", a.against, out.path)
	later := compare.Named{Name: out.path, Profile: out.stored}
	var err error
	if len(a.earlier) == 1 && a.per == defaultPer {
		err = recordings.CompareTwo(w, a.earlier[0], later, &a.opts)
	} else {
		_, err = compare.Audit(w, a.earlier, []compare.Named{later}, &a.opts)
	}
	if err != nil {
		return fmt.Errorf("compare with %s: %w", a.against, err)
	}
	return nil
}

// defaultPer is the unit of work if none is given.
const defaultPer = "seconds"
