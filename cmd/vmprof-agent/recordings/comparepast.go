package recordings

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
)

// pastSides are the flags of compare for two times of the history: B from --from to --to, and A,
// the time before it.
type pastSides struct {
	pastFlags
	baseline, baselineTo, event string
	earlier                     history.Selection
}

// defaultBaseline is how long before B side A is: the same time yesterday.
const defaultBaseline = "24h"

func (p *pastSides) add(fs *pflag.FlagSet) {
	p.pastFlags.add(fs)
	fs.StringVar(&p.baseline, "baseline", defaultBaseline, "with --from: compare with `TIME` before it")
	fs.StringVar(&p.baselineTo, "baseline-to", "", "until `TIME` (default: as long as --from to --to)")
	cli.Renamed(fs, map[string]string{"against": "baseline", "against-to": "baseline-to"})
	fs.StringVarP(&p.event, "event", "e", "cpu", "with --from: compare `EVENT`: alloc, lock")
}

// parse reads the flags. Without --from there is nothing to read.
func (p *pastSides) parse(fs *pflag.FlagSet, now time.Time) error {
	if err := p.pastFlags.parse(fs, "", now); err != nil {
		return err
	}
	if p.from == "" {
		for _, flag := range []string{"baseline", "baseline-to", "event"} {
			if fs.Changed(flag) {
				return cli.Misuse("--" + flag + " needs --from, such as --from=03:10")
			}
		}
		return nil
	}
	var what sampling.Flags
	if !what.Choose(p.event) {
		return cli.Misuse(fmt.Sprintf("-e %s: choose one of %s", p.event, strings.Join(sampling.Names(), ", ")))
	}
	p.selection.Content = what.Parts()[0].Content
	p.earlier = p.selection
	var err error
	if p.earlier.From, p.earlier.To, err = history.ParseRange(p.baseline, p.baselineTo, p.selection.From); err != nil {
		return cli.Misuse("--baseline: " + err.Error())
	}
	if p.baselineTo == "" {
		p.earlier.To = p.earlier.From.Add(p.selection.To.Sub(p.selection.From))
		if p.earlier.From.Before(p.selection.From) && p.earlier.To.After(p.selection.From) {
			p.earlier.To = p.selection.From
		}
	}
	if p.earlier.From.Before(p.selection.To) && p.earlier.To.After(p.selection.From) {
		return cli.Misuse("both times overlap: choose --baseline and --baseline-to before --from")
	}
	return nil
}

// times are a selection in words.
func times(s *history.Selection) string {
	last := time.TimeOnly
	if s.From.Format(time.DateOnly) != s.To.Format(time.DateOnly) {
		last = time.DateTime
	}
	return s.From.Format(time.DateTime) + " to " + s.To.Format(last)
}

// maxPastWindows is how many windows of a time are compared: enough for a verdict, and few enough
// for their stacks to fit in memory.
const maxPastWindows = 60

// read reads a side, and returns how many windows it has. Its name is the time of these windows,
// which may be more or less than was asked for.
func (p *pastSides) read(ctx context.Context, s history.Selection) (compare.Named, int, error) {
	name := times(&s)
	windows := sink.NewWindows(s.Content)
	empty, have := true, s
	err := history.Read(p.dir).Split(ctx, s, maxPastWindows, func(w *profile.Profile) error {
		if windows.Full() {
			return fmt.Errorf("%s has too many stacks: choose a shorter time, or one --service", name)
		}
		empty = empty && len(w.Processes) == 0
		if windows.Len() == 0 {
			have.From = w.Start
		}
		have.To = w.Start.Add(w.Duration)
		return windows.Add(w)
	})
	if err != nil {
		return compare.Named{}, 0, p.explain(err)
	}
	if empty && p.service != "" {
		return compare.Named{}, 0, fmt.Errorf("the history has no service %s from %s; report --from lists the services",
			p.service, name)
	}
	stored, err := windows.Profile()
	return compare.Named{Name: times(&have), Profile: stored}, windows.Len(), err
}

// comparePast compares two times of the history.
func (o *compareOptions) comparePast(ctx context.Context, stdout io.Writer) (a, b compare.Named, err error) {
	p := &o.past
	var counts [2]int
	if a, counts[0], err = p.read(ctx, p.earlier); errors.Is(err, history.ErrNone) {
		return a, b, fmt.Errorf("%w; choose another time with --baseline, or keep more with "+
			"serve --history=96h (default 48h)", err)
	} else if err != nil {
		return a, b, err
	}
	if b, counts[1], err = p.read(ctx, p.selection); err != nil {
		return a, b, err
	}
	if err := writeGaps(stdout, &o.opts.Options, a, b); err != nil {
		return a, b, err
	}
	few := min(counts[0], counts[1]) < audit.LeastWindows
	if few && o.verdict {
		return a, b, fmt.Errorf("a verdict needs %d windows a side, and the history has %d of A and %d of B: choose "+
			"longer times, or remove --per, --alpha, --least and --by",
			audit.LeastWindows, counts[0], counts[1])
	}
	if p.selection.Content == sink.Time {
		if err := p.changedServices(ctx, stdout, o.opts.N); err != nil {
			return a, b, err
		}
	}
	if few {
		err = compareShares(stdout, a, b, &o.opts.Options)
	} else {
		_, err = compare.Audit(stdout, []compare.Named{a}, []compare.Named{b}, &o.opts)
	}
	return a, b, err
}

// writeGaps says what cannot be read of either side.
func writeGaps(w io.Writer, opts *compare.Options, a, b compare.Named) error {
	out := bufio.NewWriter(w)
	for i, side := range []compare.Named{a, b} {
		if part := report.MissingPart(side.Profile); part != "" {
			layout.Fold(out, string(rune('A'+i))+": "+part, opts.Width)
		}
	}
	return layout.Flush(out, "what is missing")
}

// changedServices writes what services used now and before, those first that changed most.
func (p *pastSides) changedServices(ctx context.Context, w io.Writer, rows int) error {
	used, was, err := p.rates(ctx, p.earlier)
	if err != nil {
		return err
	}
	all := maps.Clone(used)
	maps.Copy(all, was)
	names := slices.Collect(maps.Keys(all))
	change := func(name string) float64 { return math.Abs(used[name].total() - was[name].total()) }
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(change(b), change(a)), cmp.Compare(a, b))
	})
	const most = 5 // the table of methods is what was asked for
	if rows > 0 {
		rows = min(rows, most)
	}
	return p.writeServices(w, "from "+p.earlier.From.Format(time.DateTime), names, used, was, rows)
}
