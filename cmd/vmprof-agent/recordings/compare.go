package recordings

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

const compareUsage = `Usage: vmprof-agent compare [flags] A... -- B...
       vmprof-agent compare [flags] A B
       vmprof-agent compare [flags] FILE
       vmprof-agent compare [flags] --from TIME [--to TIME] [--baseline TIME]

Says whether B costs more or less than A per unit of work, how sure that is,
and which methods, calls, contexts, classes or services make the difference.
A and B are files that record wrote, directories of such files (*.pb.gz), or
URLs of serve. Record them with --window=1 and -d 60: an interval needs at least
20 windows. With several processes a side, the interval includes what differs
from one run to the next.

  vmprof-agent compare A.pb.gz B.pb.gz                 # CPU time per second
  vmprof-agent compare --per=6000:6100 A.pb.gz B.pb.gz # per request of A and B
  vmprof-agent compare --per=calls:Search.find A B     # per call of a method
  vmprof-agent compare a1 a2 a3 -- b1 b2 b3            # three processes a side
  vmprof-agent compare before/ -- after/               # files in directories
  vmprof-agent compare http://old:9464 http://new:9464 # recorded now
  vmprof-agent compare unix:/run/a.sock unix:/run/b.sock  # at Unix sockets
  vmprof-agent compare --until=decided URL URL         # or until it is sure
  vmprof-agent compare --by=total A.pb.gz B.pb.gz      # methods with callees
  vmprof-agent compare --by=edge A.pb.gz B.pb.gz       # who calls whom
  vmprof-agent compare --by=class A.pb.gz B.pb.gz      # of allocations or locks
  vmprof-agent compare --by=service A.pb.gz B.pb.gz    # of whole machines

For two files without windows, prints their overlap (the sum of the smaller of
both shares, from 0 to 100), their correlation (up to 1), and the largest
differences in shares, which may be noise.

With one FILE with windows, shows how well each predicts the next (the
precision of the profile), or compares two of its windows by shares.

  vmprof-agent compare --by=context A.pb.gz B.pb.gz    # whole stacks
  vmprof-agent compare --by=edge --ignore-sites A B    # merge call sites
  vmprof-agent compare --by=edge --engine=page A B     # one engine of several
  vmprof-agent compare --sample-type=samples A B       # CPU time, not calls
  vmprof-agent compare windows.pb.gz                   # window by window
  vmprof-agent compare --windows=2,5 windows.pb.gz     # two windows
  vmprof-agent compare -n 0 --width=0 A B | less -S    # all differences
  vmprof-agent compare -o diff.html A.pb.gz B.pb.gz    # also as flame graph

With --from, compares a time in the history of serve --history-dir with the same
time yesterday, or with another one: what changed?

  vmprof-agent compare --from=09:00 --to=10:00         # and yesterday
  vmprof-agent compare --from=20m --baseline=1h --service=shop
  vmprof-agent compare --from=03:10 --to=03:15 --baseline=20:00 -e alloc

Flags:
`

// compareOptions are the flags of compare.
type compareOptions struct {
	opts     compare.AuditOptions
	sides    [2][]string   // A and B; all of it in A if there is one file
	output   string        // page to write as well
	verdict  bool          // the user asked for one
	windows  []int         // two of the one file; none for all
	duration time.Duration // of URLs
	until    bool          // record URLs until there is a verdict
	past     pastSides     // instead of files, if it has a --from
}

// files is how many arguments there are.
func (o *compareOptions) files() int { return len(o.sides[0]) + len(o.sides[1]) }

func parseCompare(args []string, stderr io.Writer) (*compareOptions, error) {
	shown := layout.DefaultOptions()
	o := compareOptions{duration: time.Minute}
	o.opts.N, o.opts.Width, o.opts.Alpha, o.opts.Least = shown.N, shown.Width, 0.01, 1
	fs := cli.NewFlags("compare", compareUsage, stderr)
	per := fs.String("per", "seconds", "per `UNIT`: N, NA:NB, calls:METHOD")
	fs.Float64Var(&o.opts.Alpha, "alpha", o.opts.Alpha, "probability `P` of a false verdict")
	fs.Float64Var(&o.opts.Least, "least", o.opts.Least, "ignore differences below `PERCENT`")
	fs.VarP(cli.Seconds(&o.duration), "duration", "d", "record URLs for `TIME`")
	until := fs.String("until", "", "stop recording URLs early: `WHEN` is decided")
	by := fs.String("by", compare.ByMethod.String(), "compare by `KEY`: see above")
	fs.StringVar(&o.opts.SampleType, "sample-type", "", "compare `TYPE`, such as calls (default: common to both)")
	fs.StringVar(&o.opts.Engine, "engine", "", "compare the calls of `ENGINE` (default: the only one)")
	fs.BoolVar(&o.opts.IgnoreSites, "ignore-sites", false, "edges: merge all call sites between two methods")
	fs.StringVarP(&o.output, "output", "o", "", "also write a differential flame graph to `FILE` (.html)")
	fs.IntSliceVar(&o.windows, "windows", nil, "compare windows `N,M` of one file (default: neighbours)")
	fs.IntVarP(&o.opts.N, "number", "n", o.opts.N, "show `N` differences or pairs; 0 for all")
	fs.IntVar(&o.opts.Width, "width", o.opts.Width, "limit lines to `N` columns; 0 for no limit")
	o.past.add(fs)
	if err := cli.Parse(fs, compareUsage, args); err != nil {
		return nil, err
	}
	var err error
	if o.opts.By, err = compare.ParseBy(*by); err != nil {
		return nil, cli.Misuse(err.Error())
	}
	if o.opts.Per, err = compare.ParsePer(*per); err != nil {
		return nil, cli.Misuse(err.Error())
	}
	if err := o.past.parse(fs, time.Now()); err != nil {
		return nil, err
	}
	inPast := o.past.from != ""
	o.until = *until == "decided"
	dash := fs.ArgsLenAtDash()
	switch {
	case dash >= 0:
		o.sides = [2][]string{fs.Args()[:dash], fs.Args()[dash:]}
	case fs.NArg() == 2:
		o.sides = [2][]string{fs.Args()[:1], fs.Args()[1:]}
	default:
		o.sides[0] = fs.Args()
	}
	if o.output != "" {
		if format, err := sink.FormatOf(o.output); err != nil || format != sink.FormatHTML {
			return nil, cli.Misuse(fmt.Sprintf("-o %s: compare writes .html", o.output))
		}
	}
	urls := 0
	for _, name := range fs.Args() {
		if IsURL(name) {
			urls++
		}
	}
	o.verdict = dash >= 0 || urls > 0 || fs.Changed("per") || fs.Changed("alpha") || fs.Changed("least") ||
		o.opts.By == compare.ByTotal || o.opts.By == compare.ByService
	precision := o.files() == 1 && !fs.Changed("windows") && !o.verdict
	switch {
	case dash >= 0 && (len(o.sides[0]) == 0 || len(o.sides[1]) == 0):
		return nil, cli.Misuse("name recordings on both sides of --: A... -- B...")
	case inPast && fs.Changed("windows"):
		return nil, cli.Misuse("--windows is for one file: give a shorter time with --from and --to")
	case dash < 0 && o.files() != 1 && o.files() != 2 && !inPast:
		return nil, cli.Misuse("name two files, or one file with windows (record --window), or several a side: A... " +
			"-- B...")
	case fs.Changed("windows") && o.files() != 1:
		return nil, cli.Misuse("--windows is for one file: remove the other file")
	case o.verdict && o.files() == 1:
		return nil, cli.Misuse("name both sides to compare: A B, or A... -- B...")
	case fs.Changed("windows") && (len(o.windows) != 2 || min(o.windows[0], o.windows[1]) < 1):
		return nil, cli.Misuse("--windows needs the numbers of two windows, such as 2,5")
	case precision && fs.Changed("by"):
		return nil, cli.Misuse("--by is for two profiles: name two files, or --windows=1,2")
	case o.opts.N < 0, o.opts.Width < 0:
		return nil, cli.Misuse("-n and --width need a number of at least 0")
	case o.opts.IgnoreSites && o.opts.By != compare.ByEdge && !precision:
		return nil, cli.Misuse("--ignore-sites is for --by=edge")
	case !(o.opts.Alpha > 0 && o.opts.Alpha <= 0.5): // nor NaN
		return nil, cli.Misuse("--alpha needs a probability above 0 and up to 0.5")
	case !(o.opts.Least > 0 && o.opts.Least <= 100):
		return nil, cli.Misuse("--least needs a percentage above 0 and up to 100")
	case urls > 0 && (urls != 2 || o.files() != 2):
		return nil, cli.Misuse("name one URL a side, and nothing else")
	case fs.Changed("until") && !o.until:
		return nil, cli.Misuse("--until has one value: --until=decided")
	case o.output != "" && (urls > 0 || o.files() == 1 && !fs.Changed("windows")):
		return nil, cli.Misuse("-o needs files on both sides, or --windows=N,M of one")
	case (o.until || fs.Changed("duration")) && urls == 0:
		return nil, cli.Misuse("-d and --until are for URLs of serve")
	case urls > 0 && o.duration < leastRecording*time.Second:
		return nil, cli.Misuse(fmt.Sprintf("-d needs at least %d s", leastRecording))
	}
	return &o, nil
}

// Compare is the verb.
func Compare(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseCompare(args, stderr)
	if err != nil {
		return err
	}
	if o.past.from == "" && IsURL(o.sides[0][0]) {
		return o.compareURLs(ctx, stdout, stderr)
	}
	var (
		sides    [2][]compare.Named
		expanded bool // there was a directory
	)
	for side, names := range o.sides {
		for _, name := range names {
			list, err := Read(name)
			if err != nil {
				return err
			}
			expanded = expanded || list[0].Name != name
			sides[side] = append(sides[side], list...)
		}
	}
	a, b := sides[0], sides[1]
	var text bytes.Buffer
	if o.output != "" {
		if err := sink.CheckWritable(o.output); err != nil {
			return err
		}
		stdout = io.MultiWriter(stdout, &text)
	}
	switch {
	case o.past.from != "":
		a, b = make([]compare.Named, 1), make([]compare.Named, 1)
		a[0], b[0], err = o.comparePast(ctx, stdout)
	case len(o.windows) > 0:
		if a, err = windowsOf(a[0], o.windows); err == nil {
			a, b = a[:1], a[1:]
			err = compare.Profiles(stdout, a[0], b[0], &o.opts.Options)
		}
	case !o.verdict && !expanded && len(a) == 1 && len(b) == 1:
		err = CompareTwo(stdout, a[0], b[0], &o.opts)
	case o.verdict || expanded && len(b) > 0:
		_, err = compare.Audit(stdout, a, b, &o.opts)
	case len(b) == 0 && len(a) == 1:
		err = compare.Windows(stdout, a[0], &o.opts.Options)
	case len(b) == 0:
		return cli.Misuse("name both sides to compare: A B, or A... -- B...")
	default:
		err = compare.Profiles(stdout, a[0], b[0], &o.opts.Options)
	}
	if err != nil {
		return fmt.Errorf("compare profiles: %w", err)
	}
	if o.output == "" {
		return nil
	}
	return o.writePage(stdout, text.String(), a, b)
}

// CompareTwo compares two recordings: their windows if there are enough for an interval, and
// otherwise their shares.
func CompareTwo(stdout io.Writer, a, b compare.Named, opts *compare.AuditOptions) error {
	if compare.HasEnoughWindows(a.Profile) && compare.HasEnoughWindows(b.Profile) {
		_, err := compare.Audit(stdout, []compare.Named{a}, []compare.Named{b}, opts)
		return err
	}
	if compare.HasWindows(a.Profile) && compare.HasWindows(b.Profile) {
		fmt.Fprintf(stdout, "Shares are compared: a verdict needs at least %d windows a side (--window=1 -d 60)\n\n",
			audit.LeastWindows)
	}
	return compareShares(stdout, a, b, &opts.Options)
}

// compareShares names the subtrees that only one of two recordings has, and compares the shares of
// all methods.
func compareShares(stdout io.Writer, a, b compare.Named, opts *compare.Options) error {
	if err := compare.Appeared(stdout, a, b, opts); err != nil {
		return err
	}
	return compare.Profiles(stdout, a, b, opts)
}

// writePage writes the differential flame graph of two sides, with what else there is to say.
func (o *compareOptions) writePage(stdout io.Writer, text string, a, b []compare.Named) error {
	before, err := flamesOf(a)
	if err != nil {
		return err
	}
	after, err := flamesOf(b)
	if err != nil {
		return err
	}
	page := sink.Page{Title: sideTitle(a) + " and " + sideTitle(b), Text: text}
	for _, f := range after {
		if g := like(f, before); g != nil {
			both := f.Against(g)
			both.Verdicts = o.verdicts(f.Kind, a, b)
			page.Flames = append(page.Flames, both)
		}
	}
	if len(page.Flames) == 0 {
		return errors.New("no differential flame graph: A and B have no sample type in common; " +
			"record the same -e on both sides")
	}
	for _, n := range slices.Concat(a, b) {
		name := filepath.Base(n.Name)
		if o.past.from != "" {
			name += ".pb.gz"
		}
		page.Attach(name, n.Profile)
	}
	if err := page.WriteFile(o.output, io.Discard); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "\nwritten to %s\n", o.output)
	return err
}

// verdicts are those of one kind, by the statistics of the text; nil if that compares shares only,
// without verdicts. Where there are none, all methods are undecided.
func (o *compareOptions) verdicts(kind string, a, b []compare.Named) *flame.Verdicts {
	if !o.verdict && len(a) == 1 && len(b) == 1 && !(compare.HasEnoughWindows(a[0].Profile) &&
		compare.HasEnoughWindows(b[0].Profile)) {
		return nil
	}
	opts := o.opts
	if opts.SampleType == "" && kind == flame.KindCPU {
		opts.SampleType = stored.TypeCPU
	}
	total, err := compare.MethodVerdicts(a, b, opts, compare.ByTotal)
	own, ownErr := compare.MethodVerdicts(a, b, opts, compare.ByMethod)
	if err != nil || ownErr != nil {
		return &flame.Verdicts{Total: map[string]string{}, Own: map[string]string{}}
	}
	return &flame.Verdicts{Total: total, Own: own}
}

// flamesOf adds up the recordings of a side.
func flamesOf(side []compare.Named) (sums []*flame.Graph, err error) {
	for _, n := range side {
		flames, err := flame.Read(n.Profile)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", n.Name, err)
		}
		for _, f := range flames {
			if g := like(f, sums); g != nil {
				g.Merge(f)
			} else {
				sums = append(sums, f)
			}
		}
	}
	return sums, nil
}

// like is the one of some graphs that is of the same kind as f, nil if there is none.
func like(f *flame.Graph, graphs []*flame.Graph) *flame.Graph {
	for _, g := range graphs {
		if g.Kind == f.Kind && g.Unit == f.Unit {
			return g
		}
	}
	return nil
}

// sideTitle names the recordings of a side.
func sideTitle(side []compare.Named) string {
	if len(side) == 1 {
		return filepath.Base(side[0].Name)
	}
	return fmt.Sprintf("%s and %d more", filepath.Base(side[0].Name), len(side)-1)
}

// windowsOf returns some windows of a file as profiles of their own.
func windowsOf(file compare.Named, numbers []int) (windows []compare.Named, err error) {
	for _, n := range numbers {
		p, err := stacks.WindowOf(file.Profile, int64(n))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		windows = append(windows, compare.Named{Name: fmt.Sprintf("%s, window %d", file.Name, n), Profile: p})
	}
	return windows, nil
}
