package recordings

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/timeline"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/versions"
	"github.com/vmprof-agent/vmprof-agent/agent/view/rule"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

var reportUsage = `Usage: vmprof-agent report [flags] [METHOD] FILE
       vmprof-agent report [flags] --from TIME [--to TIME]

Shows a stored pprof profile. FILE is one of:
  a file that record wrote
  a directory of such files of one kind, which are added up
  the address of a running serve, which then records 10 s
With --from, shows what serve recorded then, if it runs with --history-dir.
METHOD is a name as other views show it.
VIEW is one of:

  methods   the hot methods
  threads   groups of threads, such as http-nio-8080-exec-*, and their threads
  tree      the calling context tree: samples in each context (s:), in it and
            below it (d:), and entries (e:) if they were recorded
  contexts  how reliable the calling contexts are
  edges     the hot edges of recorded calls, and the targets of virtual calls
  versions  each method's compiled versions, and why HotSpot invalidated them;
            with METHOD, the history of that method
  layers    calls within and between application and JDK
  timeline  what each thread did over time: running, waiting, for what
  ` + strings.Join(eventViewNames(), " ") + `
            events by method, and by class, place, cause and so on;
            cpi is experimental, not verified on hardware
  slow      the slowest calls of a method, and what each waited for

  vmprof-agent report vmprof.pb.gz                     # the 20 hottest methods
  vmprof-agent report -n 0 vmprof.pb.gz                # all methods
  vmprof-agent report --view=tree vmprof.pb.gz         # contexts from 0.3%
  vmprof-agent report --view=tree --min-share=5 FILE   # contexts from 5%
  vmprof-agent report --view=tree --width=0 FILE | less -S  # full names
  vmprof-agent report --nth=2 windows.pb.gz            # one of several windows
  vmprof-agent report windows/                         # files in a directory
  vmprof-agent report --view=layers --app=com.acme. FILE    # own packages
  vmprof-agent report --view=versions vmprof.pb.gz     # recompiled methods
  vmprof-agent report --view=versions com.acme.Cart.total vmprof.pb.gz
  vmprof-agent report alloc.pb.gz                      # the allocs view
  vmprof-agent report --view=timeline -p 4711 wall.pb.gz   # threads over time
  vmprof-agent report --per=calls:Api.handle wall.pb.gz   # mean time of a call
  vmprof-agent report --where='stack.anyMatches("Json")' vmprof.pb.gz   # a part
  vmprof-agent report --cost=cloud.yaml cpu.pb.gz alloc.pb.gz   # what it costs
  vmprof-agent report --view=slow http://127.0.0.1:9464   # the next 10 s
  vmprof-agent report unix:/run/vmprof-agent/http.sock    # at a Unix socket
  vmprof-agent report -o x.html vmprof.pb.gz alloc.pb.gz  # as one page
  go tool pprof -tagleaf=class -http=:8080 alloc.pb.gz  # classes as leaves
  vmprof-agent report --from=03:10 --to=03:15          # what happened at 03:12?
  vmprof-agent report --from=20m --service=shop --view=allocs

Flags:
`

// Views are the views by name.
var Views = func() map[string]func(io.Writer, *pprof.Profile, *layout.Options) error {
	views := map[string]func(io.Writer, *pprof.Profile, *layout.Options) error{
		"methods":  report.Methods,
		"threads":  report.Threads,
		"tree":     report.Tree,
		"contexts": report.Contexts,
		"edges":    report.Edges,
		"layers":   report.Layers,
		"versions": versions.View(""),
		"timeline": timeline.Write,
		"slow":     report.Slow,
	}
	for kind := range profile.EventKinds {
		views[kind.Describe().View] = events.Views[kind]
	}
	return views
}()

// viewNames lists them for people.
func viewNames() string {
	return "methods, threads, tree, contexts, edges, layers, versions, timeline, slow; or, for events, " +
		strings.Join(eventViewNames(), ", ")
}

// eventViewNames are the views of kinds of events, in their order.
func eventViewNames() (names []string) {
	for kind := range profile.EventKinds {
		names = append(names, kind.Describe().View)
	}
	return names
}

// reportOptions are the flags of report.
type reportOptions struct {
	// view is what to show, nil for what suits the file.
	view     func(io.Writer, *pprof.Profile, *layout.Options) error
	opts     layout.Options
	viewName string
	// window is the number of the only one to show, 0 for all.
	window int64
	file   string
	past   pastFlags
	// output is the page or the speedscope file to write instead, of files.
	output string
	files  []string
	costFlag
	where *rule.Expression // of the samples to show; nil for all
}

func parseReport(args []string, stderr io.Writer) (*reportOptions, error) {
	o := reportOptions{opts: *layout.DefaultOptions()}
	fs := cli.NewFlags("report", reportUsage, stderr)
	view := fs.String("view", "", "show `VIEW` (default: the view that fits the file)")
	fs.IntVarP(&o.opts.N, "number", "n", o.opts.N, "show `N` lines of a table; 0 for all")
	fs.Float64Var(&o.opts.MinShare, "min-share", o.opts.MinShare, "tree: hide contexts below `PERCENT`")
	fs.IntVar(&o.opts.Width, "width", o.opts.Width, "limit lines to `N` columns; 0 for no limit")
	vmThreads := fs.Bool("vm-threads", false, "methods: show GC, JIT and VM threads by method")
	per := fs.String("per", "", "show the time per call: `calls:METHOD` (record --count)")
	o.costFlag.add(fs)
	where := fs.String("where", "", "show only samples for which `CONDITION` (CEL) is true")
	fs.BoolVar(&o.opts.Idle, "idle", false, "offcpu, wall, timeline: show idle threads")
	fs.Int64VarP(&o.opts.PID, "pid", "p", 0, "timeline: show only the process `PID`")
	fs.Int64Var(&o.window, "nth", 0,
		"show window `N`, or file N of a directory (default all)")
	cli.Renamed(fs, map[string]string{"window": "nth"})
	o.past.add(fs)
	fs.StringVarP(&o.output, "output", "o", "", "write `FILE` instead: .html or .json (speedscope)")
	app := fs.StringArray("app", nil, "layers: `PREFIX` of the application (default: non-JDK)")
	if err := cli.Parse(fs, reportUsage, args); err != nil {
		return nil, err
	}
	o.opts.SumVM = !*vmThreads
	o.view, o.viewName = Views[*view], *view
	if err := o.past.parse(fs, *view, time.Now()); err != nil {
		return nil, err
	}
	switch {
	case fs.Changed("pid") && *view != "timeline":
		return nil, cli.Misuse("-p PID is for --view=timeline")
	case fs.Changed("pid") && o.opts.PID < 1:
		return nil, cli.Misuse("-p needs the number of a process, such as -p 4711; without it --view=timeline shows " +
			"all")
	case fs.Changed("per") && *per == "":
		return nil, cli.Misuse(needsUnit)
	}
	if err := o.costFlag.read(*view, *per); err != nil {
		return nil, err
	}
	if fs.Changed("where") {
		var err error
		if *view == "timeline" {
			return nil, cli.Misuse("--where is for views of samples: remove it, or choose another --view than timeline")
		}
		if o.where, err = rule.NewCondition(*where); err != nil {
			return nil, cli.Misuse("--where: " + err.Error())
		}
	}
	if o.output != "" {
		if format, err := sink.FormatOf(o.output); err != nil || !format.Together() &&
			!(format == sink.FormatPprof && o.model != nil) {
			return nil, cli.Misuse(fmt.Sprintf("-o %s: report writes .html (flame graph and tables) and .json "+
				"(speedscope), and with --cost .pb.gz", o.output))
		}
		if (fs.NArg() > 0 || o.past.from != "") && *view == "" && *per == "" {
			o.files = fs.Args()
			return &o, nil
		}
	}
	switch {
	case o.output != "" && (*view != "" || *per != ""):
		return nil, cli.Misuse("-o writes all views: remove --view and --per")
	case *view != "" && *per != "":
		return nil, cli.Misuse("--per is a view of its own: remove --view")
	case *per != "" && o.past.from != "":
		return nil, cli.Misuse("--per needs a file of record --count: remove --from")
	case o.view == nil && fs.Changed("view"):
		return nil, cli.Misuse(fmt.Sprintf("unknown view %q: choose %s", *view, viewNames()))
	case len(*app) > 0 && *view != "layers":
		return nil, cli.Misuse("--app is for --view=layers")
	case o.model != nil && fs.NArg() > 0:
		o.files = fs.Args()
	case fs.NArg() == 2 && *view == "versions":
		o.view = versions.View(fs.Arg(0))
	case fs.NArg() != 1 && o.past.from == "":
		return nil, cli.Misuse("name one file, such as vmprof.pb.gz, or a directory of files")
	case fs.Changed("nth") && o.window < 1:
		return nil, cli.Misuse("--nth needs the number of a window, from 1")
	case o.opts.N < 0, o.opts.Width < 0:
		return nil, cli.Misuse("-n and --width need a number of at least 0")
	case !(o.opts.MinShare >= 0 && o.opts.MinShare <= 100): // nor NaN
		return nil, cli.Misuse("--min-share needs a percentage from 0 to 100")
	}
	if *per != "" {
		unit, err := compare.ParsePer(*per)
		if err != nil || unit.Method() == "" {
			return nil, cli.Misuse(needsUnit)
		}
		o.view = events.PerCall(unit)
	}
	if len(*app) > 0 {
		var err error
		if o.opts.App, err = beginnings(*app); err != nil {
			return nil, err
		}
	}
	if o.past.from == "" {
		o.file = fs.Arg(fs.NArg() - 1)
	}
	return &o, nil
}

const needsUnit = "--per needs the method of record --count: --per=calls:METHOD"

// beginnings returns an expression for names that begin with what any of the expressions matches.
// Plain prefixes are expressions: their dots match dots.
func beginnings(expressions []string) (*regexp.Regexp, error) {
	for i, e := range expressions {
		if _, err := regexp.Compile(e); err != nil {
			return nil, cli.Misuse(fmt.Sprintf("--app=%s is neither a prefix nor a regular expression: %v", e, err))
		}
		if e == "" {
			return nil, cli.Misuse("--app needs a prefix, such as com.acme.")
		}
		expressions[i] = "(?:" + e + ")"
	}
	return regexp.MustCompile("^(?:" + strings.Join(expressions, "|") + ")"), nil
}

// Report is the verb report.
func Report(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseReport(args, stderr)
	if err != nil {
		return err
	}
	if o.past.from != "" {
		return o.showPast(ctx, stdout)
	}
	if o.model != nil {
		return o.showCosts(ctx, stdout)
	}
	if o.output != "" {
		list, err := o.recordings(ctx)
		if err != nil {
			return err
		}
		return o.write(stdout, pageTitle(o.files), list, func(r compare.Named) string { return r.Name })
	}
	list, err := o.read(ctx)
	if err != nil {
		return err
	}
	if err := o.filter(ctx, list); err != nil {
		return err
	}
	if n := int64(len(list)); n > 1 && o.window > n {
		return fmt.Errorf("%s has %d recordings, no window %d", o.file, n, o.window)
	} else if n > 1 && o.window > 0 {
		list, o.window = list[o.window-1:o.window], 0
	}
	p, err := compare.Merge(list)
	if err != nil {
		return fmt.Errorf("show %s: %w", o.file, err)
	}
	if o.window > 0 {
		if p, err = stacks.WindowOf(p, o.window); err != nil {
			return fmt.Errorf("show %s: %w", o.file, err)
		}
	}
	return o.show(stdout, p, o.file)
}

// read reads what is to be shown, from files or from serve.
func (o *reportOptions) read(ctx context.Context) ([]compare.Named, error) {
	if !IsURL(o.file) {
		return Read(o.file)
	}
	address, patience, err := pullURL(o.file, o.viewName)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	named, err := fetchWindow(ctx, address)
	return []compare.Named{named}, err
}

// show writes the view.
func (o *reportOptions) show(stdout io.Writer, p *pprof.Profile, name string) error {
	if o.view == nil {
		if o.view = events.View(p); o.view == nil {
			o.view = report.Methods
		}
	}
	if err := o.view(stdout, p, &o.opts); err != nil {
		return fmt.Errorf("show %s: %w", name, err)
	}
	return report.Footer(stdout, p, o.opts.Width)
}

// showPast writes the view of a time in the past, below what the services used.
func (o *reportOptions) showPast(ctx context.Context, stdout io.Writer) error {
	p, err := o.past.read(ctx, o.view == nil)
	if err != nil {
		return err
	}
	of := []compare.Named{{Name: "the history", Profile: p}}
	if err := o.filter(ctx, of); err != nil {
		return err
	}
	p = of[0].Profile
	if o.model != nil {
		if p, err = o.price(of); err != nil {
			return err
		}
		return o.putCosts(stdout, p, "the history", o.past.arguments())
	}
	if o.output != "" {
		return o.write(stdout, o.past.arguments(), []compare.Named{{Name: "history.pb.gz", Profile: p}},
			func(compare.Named) string { return o.past.arguments() })
	}
	if o.view == nil && o.where == nil { // the sums of services are of all samples
		if err := o.past.services(ctx, stdout, o.opts.N); err != nil {
			return err
		}
	}
	return o.show(stdout, p, "the history")
}

// recordings are all that the files hold, or the window that was chosen of them.
func (o *reportOptions) recordings(ctx context.Context) (list []compare.Named, err error) {
	for _, name := range o.files {
		of, err := Read(name)
		if err != nil {
			return nil, err
		}
		for _, r := range of {
			if o.window > 0 {
				if r.Profile, err = stacks.WindowOf(r.Profile, o.window); err != nil {
					return nil, fmt.Errorf("show %s: %w", r.Name, err)
				}
			}
			list = append(list, r)
		}
	}
	return list, o.filter(ctx, list)
}

// filter leaves out samples that --where is not true for.
func (o *reportOptions) filter(ctx context.Context, list []compare.Named) (err error) {
	if o.where == nil {
		return nil
	}
	for i := range list {
		if list[i].Profile, err = rule.Filter(ctx, list[i].Profile, o.where); err != nil {
			return fmt.Errorf("%s: %w", list[i].Name, err)
		}
	}
	return nil
}

// write writes the page or the speedscope file of recordings. The page says with which arguments of
// report each is seen again.
func (o *reportOptions) write(
	stdout io.Writer, title string, list []compare.Named, arguments func(compare.Named) string,
) error {
	if err := sink.CheckWritable(o.output); err != nil {
		return err
	}
	page := sink.Page{Title: title}
	for _, r := range list {
		page.Add(filepath.Base(r.Name), r.Profile)
		page.Commands = append(page.Commands, "vmprof-agent report "+arguments(r))
	}
	if err := page.WriteFile(o.output, stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stdout, "written to %s\n", o.output)
	return err
}

// pageTitle names files.
func pageTitle(files []string) string {
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	return strings.Join(names, ", ")
}
