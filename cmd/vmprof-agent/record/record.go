// Package record has the verb record: it profiles processes, or a command, for some time and writes
// files. The flags are recordOptions. With the processes and the files that they mean they become a
// plan, which is carried out as a recording.
package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
)

var recordUsage = `Usage: vmprof-agent record [flags] [-- COMMAND [ARG]...]

Profiles running processes, or COMMAND and its children, and writes a file.
A name selects only processes that already run.
Without -p and COMMAND it profiles the whole machine. Ctrl-C ends the recording
early, writes the file and ends COMMAND. After -d, COMMAND keeps running. The
summary goes to stdout or, with COMMAND, to stderr.

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
` + sampling.Help() + `FILE ends in .html (flame graph, tables, the profile inside), .pb.gz (pprof),
.json (speedscope), .folded or .txt. For several events .html and .json have
all of them; otherwise FILE is a directory with one file per event (cpu and
calls share one).

Flags:
`

// recordOptions are the flags of record.
type recordOptions struct {
	targets  targets.Flag
	pids     []int // that targets select
	duration time.Duration
	window   time.Duration // of each of several consecutive windows; 0: there is one
	clock    sampling.Clock
	output   []string
	stats    string
	log      cli.Log
	notes    bool // of the profile, behind the summary
	command  []string
	contexts sampling.Contexts
	against  againstFlags
	count    countFlags
	slow     sampling.Slow
	rescue   *rescuer // of files that cannot be written; nil for none
	sampling.Flags
}

// parts are what is recorded, file by file. Counted calls are in each file of time.
func (o *recordOptions) parts() []sampling.Part {
	parts := o.Flags.Parts()
	for i := range parts {
		if o.count.text != "" && isCounted(parts[i]) {
			parts[i].Content |= sink.CallCounts
		}
		parts[i].Content |= o.slow.Content(parts[i].Content)
	}
	return parts
}

// defaultDuration of a recording without COMMAND: long enough for 3,000 samples of a busy CPU at 99
// Hz.
const defaultDuration = 30 * time.Second

func parseRecord(args []string, stderr io.Writer) (*recordOptions, error) {
	var o recordOptions
	fs := cli.NewFlags("record", recordUsage, stderr)
	o.targets.Add(fs, "profile process `PID` (or name, pattern) and new children")
	fs.VarP(cli.Seconds(&o.duration), "duration", "d", "stop after `TIME`: 10, 5m (default 30s, or COMMAND's end)")
	o.Add(fs)
	fs.StringArrayVarP(&o.output, "output", "o", nil, "write `FILE`s; - for stdout (default "+defaultOutput+")")
	o.clock.Add(fs)
	fs.Var(cli.Seconds(&o.window), "window", "split the recording into windows of `TIME`, for compare")
	o.against.add(fs)
	o.count.add(fs)
	o.slow.Add(fs)
	fs.StringVar(&o.stats, "stats", "", "also write the agent's own counters to `FILE`, as JSON")
	fs.BoolVar(&o.notes, "notes", false, "also print all notes of the profile")
	o.log.Add(fs, "log attached probes and failures")
	o.AddExact(fs)
	o.contexts.Add(fs)
	if err := cli.Parse(fs, recordUsage, args); err != nil {
		return nil, err
	}
	if at := fs.ArgsLenAtDash(); at > 0 || (at < 0 && fs.NArg() > 0) {
		if fs.NArg() == 1 && targets.IsRunning(fs.Arg(0)) {
			return nil, cli.Unexpected(fs.Arg(0), "; to profile the running process use -p "+fs.Arg(0))
		}
		return nil, cli.Unexpected(fs.Arg(0), "; put a command after --, as in record -- "+strings.Join(fs.Args(), " "))
	}
	o.command = fs.Args()
	switch {
	case len(o.command) > 0 && len(o.targets.Words) > 0:
		return nil, cli.Misuse("-p and COMMAND cannot be combined: remove one of them")
	case o.Exact != "" && len(o.command) == 0 && len(o.targets.Words) != 1:
		return nil, cli.Misuse("--exact counts the calls of one JVM: select it with -p, or start it as a command")
	case o.duration < 0 || o.duration == 0 && fs.Changed("duration"):
		return nil, cli.Misuse("-d needs a duration above 0, such as 10s; without -d a recording takes 30 s, or as " +
			"long as COMMAND")
	case o.window <= 0 && fs.Changed("window"):
		return nil, cli.Misuse(fmt.Sprintf("--window needs a duration of at least %v", minWindow))
	}
	if o.duration == 0 && len(o.command) == 0 {
		o.duration = defaultDuration
	}
	if err := errors.Join(o.log.Check(), o.clock.Check(), o.Check(fs), o.contexts.Read(fs, o.Exact != "")); err != nil {
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
	if err := errors.Join(o.count.check(&o), o.checkSlow(), o.against.check(fs, &o)); err != nil {
		return nil, err
	}
	return &o, o.checkWindow()
}

// checkSlow fails where a recording cannot have slow calls.
func (o *recordOptions) checkSlow() error {
	if o.slow.Text == "" {
		return nil
	}
	if o.Exact != "" || o.count.text != "" {
		return cli.Misuse("--slow sets breakpoints of its own, and counts all calls: remove --exact and --count")
	}
	if flat, err := o.flatOutput(sink.FormatPprof, sink.FormatHTML); err == nil && flat != "" {
		return cli.Misuse(fmt.Sprintf("%s cannot keep slow calls: use an output that ends in .pb.gz or .html for "+
			"--slow", flat))
	}
	return o.slow.Check(&o.targets, &o.Flags)
}

// Run is the verb.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseRecord(args, stderr)
	if err != nil {
		return err
	}
	// A terminal that goes away ends a recording as Ctrl-C does, unless nohup(1) has it ignored.
	if !signal.Ignored(syscall.SIGHUP) {
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		context.AfterFunc(ctx, stop)
		defer stop()
	}
	p, err := o.plan(ctx, stdout, stderr)
	if err != nil {
		return err
	}
	p.log.Debug(p.String())
	r, err := p.start(ctx)
	defer func() { r.close(ctx.Err() != nil) }()
	if err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	return r.finish(ctx)
}
