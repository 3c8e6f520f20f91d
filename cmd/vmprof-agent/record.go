package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/term"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/version"
)

var recordUsage = `Usage: vmprof-agent record [flags] [-- COMMAND [ARG]...]

Profiles running processes, or COMMAND and its children, and writes a file.
A name selects only processes that already run.
Without -p and COMMAND it profiles the whole machine. Ctrl-C ends the recording
early, writes the file and ends COMMAND. After -d, COMMAND keeps running. The
summary is on stdout, with COMMAND on stderr.

  vmprof-agent record -p 4711                   # one JVM, 30 s, to vmprof.pb.gz
  vmprof-agent record -p shop                   # by unit, jar or main class
  vmprof-agent record -d 10 -o all.html         # the machine, as a page
  vmprof-agent record -o job.txt -- java -jar job.jar
  vmprof-agent record -e alloc -p 4711          # allocated objects, by method
  vmprof-agent record -e cpu,alloc,lock -o out  # out/cpu.pb.gz and so on
  vmprof-agent record -e calls -p 4711          # call counts
  vmprof-agent record -e wall --slow=Api.handle -p 4711  # the slowest calls
  vmprof-agent record --against=a.pb.gz -p 4711 # slower than a.pb.gz?

EVENT is one or several of:
` + eventsHelp() + `FILE ends in .html (flame graph, tables, the profile inside), .pb.gz (pprof),
.json (speedscope), .folded or .txt. For several events .html and .json have
all of them; otherwise FILE is a directory with one file per event (cpu and
calls share one).

Flags:
`

// recordOptions are the flags of record.
type recordOptions struct {
	targets   targets
	pids      []int // that targets select
	duration  time.Duration
	window    time.Duration // of each of several consecutive windows; 0: there is one
	frequency int
	clock     attach.Clock
	output    []string
	stats     string
	log       logFlags
	notes     bool // of the profile, behind the summary
	command   []string
	contexts  contextFlags
	against   againstFlags
	count     countFlags
	slow      slowFlags
	rescue    *rescuer // of files that cannot be written; nil for none
	eventFlags
}

// parts are what is recorded, file by file. Counted calls are in each file of time.
func (o *recordOptions) parts() []part {
	parts := o.eventFlags.parts()
	for i := range parts {
		if o.count.text != "" && parts[i].counted() {
			parts[i].content |= sink.CallCounts
		}
		parts[i].content |= o.slow.content(parts[i])
	}
	return parts
}

// defaultDuration of a recording without COMMAND: long enough for 3,000 samples of a busy CPU at 99
// Hz.
const defaultDuration = 30 * time.Second

func parseRecord(args []string, stderr io.Writer) (*recordOptions, error) {
	var o recordOptions
	fs := newFlags("record", recordUsage, stderr)
	o.targets.add(fs, "profile process `PID` (or name, pattern) and new children")
	fs.VarP(seconds{&o.duration}, "duration", "d", "stop after `TIME`: 10, 10s, 5m (default 30s, or COMMAND's)")
	o.add(fs)
	fs.StringArrayVarP(&o.output, "output", "o", nil, "write `FILE`s; - for stdout (default "+defaultOutput+")")
	fs.IntVarP(&o.frequency, "frequency", "F", agent.DefaultFrequency, "take `HZ` samples per second of CPU time")
	fs.TextVar(&o.clock, "clock", attach.AutoClock, "sample by `CLOCK`: tick, cpu-clock")
	fs.Var(seconds{&o.window}, "window", "keep consecutive windows of `TIME` apart, for compare")
	o.against.add(fs)
	o.count.add(fs)
	o.slow.add(fs)
	fs.StringVar(&o.stats, "stats", "", "also write the agent's own counters to `FILE`, as JSON")
	fs.BoolVar(&o.notes, "notes", false, "also print all notes of the profile")
	o.log.add(fs, "log attached probes and failures")
	o.addExact(fs)
	o.contexts.add(fs)
	if err := parseFlags(fs, recordUsage, args); err != nil {
		return nil, err
	}
	if at := fs.ArgsLenAtDash(); at > 0 || (at < 0 && fs.NArg() > 0) {
		if fs.NArg() == 1 && isRunning(fs.Arg(0)) {
			return nil, unexpected(fs.Arg(0), "; to profile the running process use -p "+fs.Arg(0))
		}
		return nil, unexpected(fs.Arg(0), "; put a command after --, as in record -- "+strings.Join(fs.Args(), " "))
	}
	o.command = fs.Args()
	switch {
	case len(o.command) > 0 && len(o.targets.words) > 0:
		return nil, usageError("-p and COMMAND cannot be combined: remove one of them")
	case o.frequency < 1:
		return nil, usageError("-F needs a frequency of at least 1 Hz")
	case o.exact != "" && len(o.command) == 0 && len(o.targets.words) != 1:
		return nil, usageError("--exact counts the calls of one JVM: select it with -p, or start it as a command")
	case o.duration < 0 || o.duration == 0 && fs.Changed("duration"):
		return nil, usageError("-d needs a duration above 0, such as 10s; without -d a recording takes 30 s, or as " +
			"long as COMMAND")
	case o.window <= 0 && fs.Changed("window"):
		return nil, usageError(fmt.Sprintf("--window needs a duration of at least %v", minWindow))
	}
	if o.duration == 0 && len(o.command) == 0 {
		o.duration = defaultDuration
	}
	if err := errors.Join(o.log.check(), o.check(fs), o.contexts.read(fs, o.exact != "")); err != nil {
		return nil, err
	}
	if len(o.output) == 0 {
		o.output = []string{defaultOutput}
		if len(o.parts()) > 1 {
			o.output = []string{defaultDirectory}
		}
	}
	if err := o.checkStdout(); err != nil {
		return nil, err
	}
	if err := errors.Join(o.count.check(&o), o.slow.checkRecording(&o), o.against.check(fs, &o)); err != nil {
		return nil, err
	}
	return &o, o.checkWindow()
}

// record is the verb.
func record(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseRecord(args, stderr)
	if err != nil {
		return err
	}
	if o.pids, err = o.targets.find(ctx); err != nil {
		return err
	}
	if o.exact != "" && len(o.command) == 0 && len(o.pids) != 1 {
		return usageError("--exact counts the calls of one JVM: select it with -p")
	}
	chosen := chosenProcesses(o.pids)
	log := o.log.logger(stderr)
	limitMemory(log)
	// A terminal that goes away ends a recording as Ctrl-C does, unless nohup(1) has it ignored.
	if !signal.Ignored(syscall.SIGHUP) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		context.AfterFunc(ctx, stop)
		defer stop()
	}
	if err := o.findValues(ctx, o.pids); err != nil {
		return err
	}
	outputs, together := o.outputs()
	if err := o.checkOutputs(outputs, together); err != nil {
		return err
	}
	var child *command
	if len(o.command) > 0 {
		childOut := stdout
		if slices.Contains(o.output, sink.Stdout) {
			childOut = stderr
		}
		if child, err = startCommand(o.command, childOut, stderr); err != nil {
			return err
		}
		defer func() { child.leave(ctx.Err() != nil) }()
		o.pids = []int{child.pid()}
	}
	written := []string{o.stats}
	for _, out := range outputs {
		written = append(written, out.path)
	}
	written = append(written, together...)
	options := agent.Options{
		Frequency: o.frequency, Clock: o.clock, PIDs: o.pids, Version: version.String(), Log: log,
		Settle: settle(written...), MaxContexts: maxContexts(debug.SetMemoryLimit(-1)),
	}
	o.apply(&options)
	o.contexts.apply(&options)
	if err := o.slow.apply(ctx, o.pids, o.events.Budget, &options); err != nil {
		return err
	}
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		if a != nil {
			a.Close()
		}
	}()

	if err := o.checkCounted(ctx, log); err != nil {
		return err
	}
	if err := o.count.open(ctx, o, log); err != nil {
		return err
	}
	defer o.count.close()
	if err := o.slow.settle(ctx, a); err != nil {
		return err
	}
	if err := chosen.checkRunning(log); err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(run) }()
	waitReady(ctx, a, stderr)
	w := a.Open(nil)
	o.count.take() // what was counted before
	log.Debug("recording")
	began := time.Now()
	used := usedBy(o.pids)
	windows := o.rotate(ctx, w) // nil without --window
	bar := newProgress(stderr, began, o.duration)
	if child != nil {
		bar.w = nil // COMMAND writes to the same terminal
	}
	childErr := o.wait(ctx, a, child, &chosen, ended, bar)
	lasted := time.Since(began)
	idle, stopped := idleNotes(used, time.Second/time.Duration(o.frequency))
	w, windowErr := windows.stop(w)
	counts, countErr := o.count.finish()
	countErr = errors.Join(countErr, o.slow.err(a))
	stop()
	runErr := <-ended
	if runErr != nil {
		return runErr
	}
	if windowErr != nil {
		return windowErr
	}
	p, err := w.Close(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if chosen.ended && lasted < unseenEnd && windows == nil && !recorded(p) {
		return chosen.endedBefore()
	}
	if child != nil {
		nameCommand(p, child.pid(), o.command)
	}
	o.count.fill(p, counts, true)
	use := useOf(a)
	// All names are in the profile. Without what they were made of there is room for what is made
	// of them.
	a.Close()
	a = nil
	runtime.GC()
	o.rescue = newRescuer(ctx, stderr)
	accounts, failed, err := o.store(stdout, p, windows, outputs)
	if err != nil {
		return err
	}
	together, err = o.writeTogether(stdout, outputs, together)
	failed = errors.Join(failed, err) // a full disk takes files, but not the summary
	if child != nil && ctx.Err() == nil && child.running() {
		fmt.Fprintf(stderr, "vmprof-agent: the recording ended after %v (-d); %s still runs as process %d\n",
			o.duration, o.command[0], child.pid())
	}
	if o.stats != "" {
		if err := writeStats(o.stats, use, accounts); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	summary := stdout
	if slices.Contains(o.output, sink.Stdout) || child != nil { // stdout is COMMAND's
		summary = stderr
	}
	if err := o.summarize(summary, outputs, together, stopped); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	for _, note := range idle {
		fmt.Fprintln(summary, note)
	}
	for _, out := range outputs {
		if out.content == sink.OfEvents(profile.Values) && !out.again {
			if err := o.valuesMissed(context.WithoutCancel(ctx), use.health.Events, out.stored); err != nil {
				return err
			}
		}
	}
	if countErr != nil {
		return fmt.Errorf("%w. Everything else that was recorded is complete", countErr)
	}
	if err := o.against.compare(summary, outputs[0]); err != nil {
		return err
	}
	return childErr
}

// How long a recording waits for its probes before it begins without them, and before it says that
// it waits. Attaching takes a quarter of a second on an idle machine, and many seconds where
// several threads compete for each CPU.
const (
	readyPatience = 30 * time.Second
	silentWait    = 2 * time.Second
)

// waitReady returns when all is observed that is to be recorded, or after readyPatience.
func waitReady(ctx context.Context, a *agent.Agent, stderr io.Writer) {
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		a.Ready(ctx, readyPatience)
	}()
	select {
	case <-ready:
		return
	case <-time.After(silentWait):
	}
	fmt.Fprintf(stderr, "vmprof-agent record: the recording begins when all probes are attached, in %v at most\n",
		readyPatience-silentWait)
	<-ready
}

// wait returns when the recording is over: its time is, the command or all chosen processes ended,
// or ctx did.
func (o *recordOptions) wait(
	ctx context.Context, a *agent.Agent, child *command, chosen *chosen, ended chan error, bar *progress,
) error {
	defer bar.clear()
	var timeUp <-chan time.Time
	if o.duration > 0 {
		timeUp = time.After(o.duration)
	}
	var exited <-chan error
	if child != nil {
		child.release()
		exited = child.exited
	}
	gone := make(chan struct{})
	if len(chosen.processes) > 0 {
		watch, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			if chosen.waitGone(watch) {
				close(gone)
			}
		}()
	}
	var redraw <-chan time.Time
	if bar.w != nil {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		redraw = tick.C
	}
	for {
		select {
		case <-timeUp:
			return nil
		case <-ctx.Done():
			return nil
		case <-gone:
			chosen.ended = true
			return nil
		case err := <-ended:
			ended <- err
			return nil
		case err := <-exited:
			return err
		case <-redraw:
			bar.draw(a)
		}
	}
}

// summarize ends a recording: what was recorded, where it is, and what to do next. Stopped says
// that the processes did not run because something stopped them.
func (o *recordOptions) summarize(w io.Writer, outputs []output, together []string, stopped bool) error {
	opts := report.SummaryOptions{CPUs: runtime.NumCPU(), Stopped: stopped}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			opts.Width = max(width, leastWidth)
		}
		opts.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	var files []*pprof.Profile
	for _, out := range outputs {
		if !out.again {
			files = append(files, out.stored)
		}
	}
	opts.Next = next(outputs, together)
	if err := report.Summary(w, files, &opts); err != nil || !o.notes {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(w) // an error shows at the next write
		if err := report.Footer(w, file, opts.Width); err != nil {
			return err
		}
	}
	return nil
}

// leastWidth is how many columns a terminal has at least: in less nothing can be read.
const leastWidth = 40

// next are the lines on where the recording is, and what to do with it.
func next(outputs []output, together []string) (lines []string) {
	var first *output
	parts := 0
	for i := range outputs {
		out := &outputs[i]
		if !out.again {
			parts++
		}
		if first == nil && out.path != "" && out.path != sink.Stdout && !out.failed {
			first = out
		}
	}
	for _, out := range outputs {
		if out.path == "" || out.path == sink.Stdout || out.failed {
			continue
		}
		line := "written to " + out.path
		if parts > 1 {
			line = "written to " + filepath.Dir(out.path) + string(filepath.Separator)
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, path := range together {
		lines = append(lines, "written to "+path)
	}
	if what := nextCommand(first, parts, together); what != "" {
		lines = append(lines, "next: "+what)
	}
	return lines
}

// nextCommand is what to type or to do next; "" for nothing. The first file has a part of the
// recording; it is nil if there is none.
func nextCommand(first *output, parts int, together []string) string {
	for _, path := range together {
		if format, err := sink.FormatOf(path); err == nil && format == sink.FormatHTML {
			return "open " + path + " in a browser"
		}
	}
	if first == nil {
		if len(together) > 0 {
			return "open " + together[0] + " in speedscope"
		}
		return ""
	}
	file := first.path
	format, err := sink.FormatOf(file)
	switch {
	case err != nil:
		return ""
	case parts > 1:
		return "vmprof-agent report " + file
	case format == sink.FormatPprof && first.content&sink.Slow != 0:
		return "vmprof-agent report --view=slow " + file
	case format == sink.FormatPprof && first.content&sink.Time != 0:
		return "vmprof-agent report --view=tree " + file
	case format == sink.FormatPprof:
		return "vmprof-agent report -n 0 " + file
	case format == sink.FormatCollapsed:
		return "flamegraph.pl " + file + " > " + strings.TrimSuffix(file, filepath.Ext(file)) + ".svg"
	}
	return "less -S " + file
}

const progressInterval = 500 * time.Millisecond

// A progress is one line on a terminal that shows how a recording goes. Elsewhere it is silent.
type progress struct {
	w     io.Writer // nil: silent
	began time.Time
	total time.Duration // 0: until something else ends it
}

func newProgress(w io.Writer, began time.Time, total time.Duration) *progress {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &progress{w, began, total}
}

const eraseLine = "\r\x1b[K"

func (p *progress) draw(a *agent.Agent) {
	if p.w == nil {
		return
	}
	c, err := a.Counts()
	if err != nil {
		return // it was logged
	}
	at := time.Since(p.began).Round(time.Second).String()
	if p.total > 0 {
		at += " of " + p.total.String()
	}
	fmt.Fprintf(p.w, "%srecording: %s, %s, %d lost, %s (Ctrl-C ends)", eraseLine, at,
		stored.Plural(int(c.Folded), "sample"), c.DroppedTotal(), stored.Plural(a.Guests(), "JVM"))
}

func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine)
	}
}
