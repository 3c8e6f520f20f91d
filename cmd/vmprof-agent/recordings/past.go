package recordings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

// pastFlags are the flags of report for the history.
type pastFlags struct {
	from, to, dir, service string
	selection              history.Selection
}

func (p *pastFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&p.from, "from", "", "read the history from `TIME` on: 03:10, 20m (ago)")
	fs.StringVar(&p.to, "to", "", "until `TIME` (default: now)")
	fs.StringVar(&p.service, "service", "", "only the service `NAME`, with --from")
	fs.StringVar(&p.dir, "history-dir", cli.HistoryDir, "`DIR` of serve")
}

// viewContents are what views need of the history; the others need CPU time.
var viewContents = func() map[string]sink.Content {
	contents := map[string]sink.Content{"edges": sink.CallCounts, "layers": sink.CallCounts}
	for kind := range profile.EventKinds {
		contents[kind.Describe().View] = sink.OfEvents(kind)
	}
	return contents
}()

// parse reads the flags for a view, "" for the one that suits what there is.
func (p *pastFlags) parse(fs *pflag.FlagSet, view string, now time.Time) error {
	if !fs.Changed("from") {
		for _, flag := range []string{"to", "service", "history-dir"} {
			if fs.Changed(flag) {
				return cli.Misuse("--" + flag + " needs --from, such as --from=03:10")
			}
		}
		return nil
	}
	switch {
	case fs.NArg() > 0:
		return cli.Misuse("--from reads the history of serve: remove " + fs.Arg(0))
	case view == "versions":
		return cli.Misuse("the history does not keep code versions: --view=versions needs a file")
	case view == "timeline":
		return cli.Misuse("the history does not keep what threads did over time: --view=timeline needs a file")
	case view == "slow":
		return cli.Misuse("the history does not keep slow calls: --view=slow needs a file of record --slow, or an " +
			"address of serve --slow, such as http://127.0.0.1:9464")
	case fs.Changed("nth"):
		return cli.Misuse("--nth is for files: give a shorter time with --from and --to")
	}
	var err error
	if p.selection.From, p.selection.To, err = history.ParseRange(p.from, p.to, now); err != nil {
		return cli.Misuse(err.Error())
	}
	if p.selection.To.After(now) && p.selection.To.Sub(p.selection.From) > nextDay {
		return cli.Misuse(fmt.Sprintf("--to=%s is before --from=%s, or in the future: give the earlier time to "+
			"--from, or dates such as 2026-11-25T03:10 to both", p.to, p.from))
	}
	p.selection.Service = p.service
	switch {
	case view == "":
		p.selection.Content = sink.Time
	case viewContents[view] != 0:
		p.selection.Content = viewContents[view]
	default:
		p.selection.Content = sink.Time
	}
	return nil
}

// nextDay is how far a --to in the future may be from --from: one farther away was before it, and
// is taken for that of the next day.
const nextDay = 12 * time.Hour

// arguments are those of report for the same again.
func (p *pastFlags) arguments() string {
	text := "--from=" + p.from
	for _, f := range []struct{ name, value, omitted string }{{"to", p.to, ""}, {"service", p.service, ""},
		{"history-dir", p.dir, cli.HistoryDir}} {
		if f.value != f.omitted {
			text += " --" + f.name + "=" + f.value
		}
	}
	return text
}

// read returns a profile of the history. With anything it is of what there is if there is no CPU
// time.
func (p *pastFlags) read(ctx context.Context, anything bool) (*pprof.Profile, error) {
	window, err := history.Read(p.dir).Query(ctx, p.selection)
	if err != nil {
		return nil, p.explain(err)
	}
	content := p.selection.Content
	if anything && len(window.Processes) > 0 && sampled(window) == 0 {
		everything := p.selection
		everything.Content = 0
		if window, err = history.Read(p.dir).Query(ctx, everything); err != nil {
			return nil, p.explain(err)
		}
		content = sink.ContentOf(window)
	}
	if len(window.Processes) == 0 && p.service != "" {
		return nil, fmt.Errorf("the history has no service %s at that time; without --service report lists them",
			p.service)
	}
	return sink.Pprof(window, content)
}

func sampled(p *profile.Profile) (n uint64) {
	for _, proc := range p.Processes {
		for _, t := range proc.Threads {
			n += t.Tree.Total()
		}
	}
	return n
}

// explain adds the remedy.
func (p *pastFlags) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: pass the same --history-dir that serve runs with", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: only root and the agent's user can read it; use sudo", err)
	}
	return err
}

// before is how much of the time before it the selection is compared with, by default.
const before = time.Hour

// services writes what each service used, and what it used in the hour before.
func (p *pastFlags) services(ctx context.Context, w io.Writer, rows int) error {
	earlier := p.selection
	earlier.From, earlier.To = p.selection.From.Add(-before), p.selection.From
	used, was, err := p.rates(ctx, earlier)
	if err != nil {
		return err
	}
	names := slices.Collect(maps.Keys(used))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(used[b].total(), used[a].total()), cmp.Compare(a, b))
	})
	return p.writeServices(w, "in the hour before", names, used, was, rows)
}

// leastCPUs is what a service must use to be listed.
const leastCPUs = 0.0005

// rates are what services used in the selection and earlier; the latter is nil if the history has
// nothing of that time.
func (p *pastFlags) rates(ctx context.Context, earlier history.Selection) (used, was map[string]rate, err error) {
	r := history.Read(p.dir)
	for _, part := range []struct {
		of history.Selection
		to *map[string]rate
	}{{p.selection, &used}, {earlier, &was}} {
		windows, err := r.Timeline(ctx, part.of.From, part.of.To, p.service)
		if err != nil {
			return nil, nil, p.explain(err)
		}
		if windows = inside(windows, &part.of); len(windows) > 0 {
			*part.to = rates(windows)
		}
	}
	return used, was, nil
}

// writeServices writes a table of services, most notable first, of at most so many rows; 0 for all.
func (p *pastFlags) writeServices(w io.Writer, when string, names []string, used, was map[string]rate, rows int) error {
	if len(names) == 0 {
		return nil // Query says why
	}
	var b strings.Builder
	length := p.selection.To.Sub(p.selection.From).Round(time.Second).String()
	if minutes, whole := strings.CutSuffix(length, "m0s"); whole {
		length = minutes + "m"
	}
	fmt.Fprintf(&b, "Services from %s, for %s; before: %s\n", p.selection.From.Format("2006-01-02 15:04:05 MST"),
		length, when)
	fmt.Fprintf(&b, "%7s %7s  %5s %5s %5s %6s %6s  service\n", "CPUs", "before", "Java", "JIT", "GC", "kernel",
		"native")
	for i, name := range names {
		u := used[name]
		if i == rows && rows > 0 || rows != 0 && max(u.total(), was[name].total()) < leastCPUs {
			fmt.Fprintf(&b, "%s\n", stored.Plural(len(names)-i, "more service"))
			break
		}
		last := "-"
		if was != nil {
			last = fmt.Sprintf("%.2f", was[name].total())
		}
		share := func(kinds ...profile.CodeKind) string {
			sum := 0.0
			for _, k := range kinds {
				sum += u.cpu[k]
			}
			return fmt.Sprintf("%.0f%%", 100*sum/max(u.total(), 1e-9))
		}
		if name == "" {
			name = "(other)"
		}
		fmt.Fprintf(&b, "%7.2f %7s  %5s %5s %5s %6s %6s  %s\n", u.total(), last, share(profile.GuestCode),
			share(profile.Compiling), share(profile.Collecting),
			share(profile.KernelCode), share(profile.NativeCode, profile.Housekeeping), stored.Printable(name))
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// inside are those of the windows that a query for the selection reads: the ones with at least half
// of their time in it, or else all.
func inside(windows []history.Slice, of *history.Selection) []history.Slice {
	within := slices.DeleteFunc(slices.Clone(windows), func(s history.Slice) bool {
		from, to := s.Start, s.End
		if of.From.After(from) {
			from = of.From
		}
		if of.To.Before(to) {
			to = of.To
		}
		return to.Sub(from) < s.End.Sub(s.Start)/2
	})
	if len(within) == 0 {
		return windows
	}
	return within
}

// A rate is the CPUs that a service used, by kind of code.
type rate struct{ cpu [profile.CodeKinds]float64 }

func (r rate) total() (sum float64) {
	for _, v := range r.cpu {
		sum += v
	}
	return sum
}

// rates are those of the services in windows.
func rates(slices []history.Slice) map[string]rate {
	covered := 0.0
	for i := range slices {
		covered += slices[i].Covered.Seconds()
	}
	all := make(map[string]rate)
	for i := range slices {
		for _, s := range slices[i].Services {
			r := all[s.Service]
			for k, d := range s.CPU {
				r.cpu[k] += d.Seconds() / max(covered, 1e-9)
			}
			all[s.Service] = r
		}
	}
	return all
}
