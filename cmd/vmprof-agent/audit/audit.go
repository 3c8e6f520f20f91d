// Package audit has the verb audit: it times invocations of a method, each version of its code
// separately, until it is sure which one is faster.
package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/page"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/self"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
)

const auditUsage = `Usage: vmprof-agent audit -p PID [-p PID2] --method M [flags]

Times invocations of a method while the program runs, each version of its code
separately, and says which version is faster, by how much, and how sure that
is. It ends at a verdict, or undecided after -d. M is CLASS.METHOD, with
a signature if there are several of that name: a.Cart.total(I)V; or the
name under which a VM registered it.

A process is a JVM, whose versions are compilations of the method, timed by
hardware breakpoints; or a VM that includes vmprof.h and times versions itself
(docs/guests.md). It compares versions within one process, or between two. A
method that the JVM inlines everywhere has no entry: audit the caller that the
error names.

  vmprof-agent audit -p 4711 --method com.acme.Search.find
  vmprof-agent audit -p 4711 -p 4712 --method com.acme.Search.find  # a canary
  vmprof-agent audit -p 4711 --method find --loops          # iterations, too
  vmprof-agent audit -p 4711 --method f --confidence=0.9999 -d 10m
  vmprof-agent audit -p 4711 --method f --precision=0.5 -d 10m

Flags:
`

// auditOptions are the flags of audit.
type auditOptions struct {
	targets    targets.Flag
	pids       []int // that targets select
	method     string
	loops      bool
	confidence float64
	least      float64 // percent
	precision  float64 // percent; 0: any
	duration   time.Duration
	socket     string
	logging    cli.Log

	breakpoints breakpoint.Policy
	engine      auditEngine // that takes the timings
	log         *slog.Logger
}

func parseAudit(args []string, stderr io.Writer) (*auditOptions, error) {
	o := auditOptions{duration: time.Minute, log: slog.New(slog.DiscardHandler)}
	fs := cli.NewFlags("audit", auditUsage, stderr)
	o.targets.Add(fs, "audit process `PID` (or name); repeatable, to compare")
	fs.StringVar(&o.method, "method", "", "time method `M`")
	fs.BoolVar(&o.loops, "loops", false, "also time iterations of its loops")
	fs.Float64Var(&o.confidence, "confidence", 0.99, "`P` of a true verdict, 0.8 to 0.9999")
	fs.Float64Var(&o.least, "least", 1, "ignore differences below `PERCENT`")
	fs.Float64Var(&o.precision, "precision", 0, "go on until the interval is ± `PERCENT` or less")
	fs.VarP(cli.Seconds(&o.duration), "duration", "d", "end without a verdict after `TIME`")
	fs.TextVar(&o.breakpoints, "breakpoints", breakpoint.Auto, "breakpoints `WHEN`: auto, always, never")
	fs.StringVar(&o.socket, "guest-socket", engines.DefaultGuestSocket, "socket `PATH`")
	o.logging.Add(fs, "log connections")
	if err := cli.Parse(fs, auditUsage, args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, cli.Unexpected(fs.Arg(0), "; name the method with --method")
	case len(o.targets.Words) == 0:
		return nil, cli.Misuse("name the process to audit: -p PID")
	case o.method == "":
		return nil, cli.Misuse("name the method to audit: --method M")
	case !(o.confidence >= 0.8 && o.confidence <= 0.9999): // nor NaN
		return nil, cli.Misuse("--confidence needs a probability from 0.8 to 0.9999")
	case !(o.least > 0 && o.least <= 100):
		return nil, cli.Misuse("--least needs a percentage above 0 and up to 100")
	case !(o.precision >= 0 && o.precision <= 100):
		return nil, cli.Misuse("--precision needs a percentage from 0 to 100")
	case o.duration < time.Second:
		return nil, cli.Misuse("-d needs at least 1 s")
	}
	return &o, o.logging.Check()
}

// maxAuditPIDs bounds the processes: each shares 12 MB with the agent.
const maxAuditPIDs = 16

// An auditEngine takes timings of some kind of process.
type auditEngine struct {
	name   string
	apart  bool // loops are timed apart from invocations: each has a verdict of its own
	serves func(ctx context.Context, pid int) bool
	open   func(ctx context.Context, o *auditOptions, log *slog.Logger) (timing.Engine, error)

	// Remedies where there are no timings, where there is one version only, and where timings are
	// too short.
	untimed, single, short string
	// caveat is what to know of versions of one process; empty if they are chosen at random.
	caveat string
}

// auditEngines are all engines. The first that serves every process takes the timings.
var auditEngines = []auditEngine{
	{
		name: "hotspot", apart: true, open: openHotspotTimer,
		serves:  func(ctx context.Context, pid int) bool { return hotspot.Serves(ctx, proc.DefaultRoot, pid) },
		untimed: "see whether report --view=versions shows compiled code of it",
		single:  "name a second process (-p), or audit while the JVM compiles it again",
		short:   "Time a method that calls it.",
		caveat:  "note: versions of one JVM run one after another; warm-up, inputs and load may differ, too",
	},
	{
		name: "page", open: openPageTimer,
		serves:  func(context.Context, int) bool { return true },
		untimed: "time its loops (--loops), or see whether the VM brackets it with VMPROF_TIMER_START and _STOP",
		single:  "let the VM choose versions with vmprof_choose",
		short:   "Time a method that calls it, or merge iterations: VMPROF_LOOP with n above 1.",
	},
}

func openHotspotTimer(ctx context.Context, o *auditOptions, log *slog.Logger) (timing.Engine, error) {
	method, err := hotspot.ParseMethod(o.method)
	if err != nil {
		return nil, cli.Misuse(err.Error())
	}
	if err := targets.CheckMethod(ctx, o.pids, method, true, log); err != nil {
		return nil, err
	}
	e, err := hotspot.Open(ctx, hotspot.Options{PIDs: o.pids, Method: method, Loops: o.loops,
		Breakpoints: o.breakpoints, Log: log})
	if err != nil {
		return nil, err // not a nil *Engine in an interface
	}
	return e, nil
}

func openPageTimer(_ context.Context, o *auditOptions, log *slog.Logger) (timing.Engine, error) {
	t, err := page.NewTimer(page.TimerOptions{
		Socket: o.socket, Loops: o.loops, Log: log,
		Wanted: func(pid int) bool { return slices.Contains(o.pids, pid) },
		Method: func(name string) bool { return name == o.method },
	})
	if err != nil {
		return nil, err // not a nil *Timer in an interface
	}
	return t, nil
}

// Run is the verb.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseAudit(args, stderr)
	if err != nil {
		return err
	}
	if o.pids, err = o.targets.Find(ctx); err != nil {
		return err
	}
	if len(o.pids) > maxAuditPIDs {
		return cli.Misuse(fmt.Sprintf("%d processes are too many to audit: name up to %d", len(o.pids), maxAuditPIDs))
	}
	if len(o.targets.Words) > 1 && len(o.pids) == 1 {
		return cli.Misuse(fmt.Sprintf("-p %s is the same process each time, %d: name another one to compare, or name "+
			"it once to compare the versions in it",
			strings.Join(o.targets.Words, " -p "), o.pids[0]))
	}
	log := o.logging.Logger(stderr)
	o.log = log
	self.LimitMemory(log)
	for _, pid := range o.pids {
		if _, err := os.Stat(fmt.Sprintf("%s/%d", proc.DefaultRoot, pid)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("process %d does not exist", pid)
		}
	}
	for _, one := range auditEngines {
		if slices.ContainsFunc(o.pids, func(pid int) bool { return !one.serves(ctx, pid) }) {
			continue
		}
		o.engine = one
		engine, err := one.open(ctx, o, log)
		if err != nil {
			return fmt.Errorf("take timings: %w", err)
		}
		err = o.run(ctx, engine, stdout)
		return errors.Join(err, engine.Close())
	}
	return errors.New("cannot audit these processes together; audit them one by one")
}

// arrival is how long a process may take to connect and to register its methods: the header tries
// again after a second, or ten.
const arrival = 15 * time.Second

// leastAudit is for how long timings are taken at least: which version is faster may depend on what
// else the machine does, which changes.
const leastAudit = 6 * time.Second

// run takes timings until there is a verdict, and writes it.
func (o *auditOptions) run(ctx context.Context, engine timing.Engine, stdout io.Writer) error {
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	a := newAuditor(o)
	alive := follow(proc.DefaultRoot, o.pids, o.log)
	var list []timing.Timing
	var failed error // of the engine, when there were timings already
	for next := began.Add(time.Second); ; {
		// Once in a while, even if there are no timings.
		turn, done := context.WithDeadline(within, next)
		var err error
		list, err = engine.Take(turn, list[:0])
		done()
		cost, _ := engine.Cost()
		for i := range list {
			a.add(&list[i], cost)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			if alive.look() { // otherwise the notes say what happened
				failed = fmt.Errorf("take timings: %w", err)
			}
			break
		}
		if within.Err() != nil {
			break
		}
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(lookPause)
		if !alive.look() {
			break
		}
		if err := o.absent(engine, time.Since(began)); err != nil {
			return err
		}
		least := leastAudit
		if o.loops && o.engine.apart && a.judged()[0] == 0 {
			least = arrival // loops may yet be timed
		}
		if a.short() != nil || time.Since(began) >= least && a.decided() {
			break
		}
	}
	if a.timings == 0 {
		if failed != nil {
			return failed
		}
		if err := o.absent(engine, arrival); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return errors.New("interrupted before there was a timing")
		}
		return o.untimed(engine, time.Since(began), alive.notes())
	}
	if err := a.short(); err != nil {
		return err
	}
	cost, margin := engine.Cost()
	if err := a.write(stdout, time.Since(began), cost, margin, engine.Stats()); err != nil {
		return err
	}
	notes := append(notesOf(engine), alive.notes()...)
	if caveat := o.engine.caveat; caveat != "" && len(o.pids) == 1 && len(a.versions) > 1 {
		notes = append([]string{caveat}, notes...)
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(stdout, note); err != nil {
			return err
		}
	}
	return failed
}

// absent is why no timings can be expected of a process, after so long.
func (o *auditOptions) absent(engine timing.Engine, waited time.Duration) error {
	finder, ok := engine.(timing.Finder)
	if !ok || waited < 3*time.Second {
		return nil
	}
	targets := finder.Targets()
	for _, pid := range o.pids {
		i := slices.IndexFunc(targets, func(t timing.Target) bool { return t.PID == pid })
		switch {
		case i < 0 && waited < arrival:
			return nil
		case i < 0:
			return fmt.Errorf("process %d has not connected to %s: only VMs that include vmprof.h and call "+
				"vmprof_start do", pid, o.socket)
		case targets[i].Problem != "":
			return fmt.Errorf("process %d: %s", pid, targets[i].Problem)
		case len(targets[i].Audited) == 0:
			return fmt.Errorf("process %d has no method named %s%s", pid, o.method,
				candidates(targets[i].Methods, o.method))
		}
	}
	return nil
}

// untimed is why there are no timings after so long, although the method is audited.
func (o *auditOptions) untimed(engine timing.Engine, took time.Duration, more []string) error {
	text := fmt.Sprintf("no invocation of %s began and ended within %v: audit longer (-d), or %s", o.method,
		took.Round(time.Second), o.engine.untimed)
	for _, note := range append(notesOf(engine), more...) {
		text += "; " + note
	}
	if lost := lostLine(engine.Stats().Lost); lost != "" {
		text += "; " + lost
	}
	return errors.New(text)
}

// notesOf are what the timings do not contain. They quote names of the target.
func notesOf(engine timing.Engine) (notes []string) {
	e, ok := engine.(interface{ Notes() []string })
	if !ok {
		return nil
	}
	for _, note := range e.Notes() {
		notes = append(notes, stored.Printable(note))
	}
	return notes
}

// candidates names methods whose names are like the wanted one, or some methods.
func candidates(methods []string, wanted string) string {
	const most = 5
	if len(methods) == 0 {
		return ": it has registered none"
	}
	if near := stored.Near(methods, wanted, most); len(near) > 0 {
		return cli.DidYouMean(near)
	}
	methods = slices.Clone(methods)
	slices.Sort(methods)
	methods = slices.Compact(methods)
	more := ""
	if len(methods) > most {
		more = fmt.Sprintf(", … (%d methods)", len(methods))
		methods = methods[:most]
	}
	return "; it has " + strings.Join(methods, ", ") + more
}
