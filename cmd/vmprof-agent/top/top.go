// Package top has the verb top: it shows in the terminal where CPU time goes. What is shown is made
// by package agent/view/top, which knows no terminal.
package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/top"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/recordings"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/self"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
	"github.com/vmprof-agent/vmprof-agent/version"
)

const topUsage = `Usage: vmprof-agent top [flags]

Shows live, in the terminal, where CPU time goes: by service, method and thread.
It keeps the last five minutes.

  vmprof-agent top                # the whole machine
  vmprof-agent top -p shop        # by pid, unit, jar or main class

With a name, processes that start later and have it are shown as well.

Keys: t threads, a allocations, l locks, o off-CPU time, c callers,
d difference to five minutes ago, / search, w write a file, space pause,
? all keys, q quit. Allocations, locks and off-CPU time are recorded only
while their view is open.

Flags:
`

// Bounds of --interval. A shorter one would make more windows in five minutes than the model holds.
const minInterval, maxInterval = time.Second, time.Minute

// topOptions are the flags of top.
type topOptions struct {
	targets  targets.Flag
	follower *follower
	clock    sampling.Clock
	interval time.Duration // the length of windows
	budget   string
	share    float64 // that budget is
}

func parseTop(args []string, stderr io.Writer) (*topOptions, error) {
	var o topOptions
	fs := cli.NewFlags("top", topUsage, stderr)
	o.targets.Add(fs, "show process `PID` (or name, pattern) and new children")
	o.interval = 2 * time.Second
	fs.VarP(cli.Seconds(&o.interval), "interval", "i", "refresh every `TIME`")
	o.clock.Add(fs)
	fs.StringVar(&o.budget, "budget", "1%", "limit recorded events to CPU `SHARE`")
	if err := cli.Parse(fs, topUsage, args); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0 && recordings.IsURL(fs.Arg(0)):
		return nil, cli.Misuse(fmt.Sprintf("top samples by itself; to see what serve records: vmprof-agent report %s",
			fs.Arg(0)))
	case fs.NArg() > 0:
		return nil, cli.Unexpected(fs.Arg(0), "; choose processes with -p")
	case o.interval < minInterval || o.interval > maxInterval:
		return nil, cli.Misuse(fmt.Sprintf("--interval needs a time from %v to %v", minInterval, maxInterval))
	}
	var err error
	if o.share, err = sampling.ParseShare(o.budget); err != nil {
		return nil, cli.Misuse(fmt.Sprintf("--budget %s: %v", o.budget, err))
	}
	return &o, o.clock.Check()
}

// Run is the verb.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseTop(args, stderr)
	if err != nil {
		return err
	}
	if err := checkTerminal(stdout); err != nil {
		return err
	}
	if o.follower, err = newFollower(o.targets, proc.DefaultRoot); err != nil {
		return err
	}
	pids, err := o.targets.Find(ctx)
	if err != nil {
		return err
	}
	if err := o.follower.choose(pids...); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal went away
	defer stop()
	var warnings warnings
	self.LimitMemory(topLogger(&warnings))
	defer warnings.print(stderr)
	options := o.options(&warnings)
	options.PIDs = pids
	options.Settle = self.Settle("top.html") // w writes to the working directory
	// Pauses are few, and cheap to record.
	options.Events = &events.Options{Budget: o.share}
	options.Events.Kinds[profile.Pauses] = true
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	defer a.Close()
	return o.run(ctx, a, &warnings)
}

// options are those of the agents: of CPU time, and of each kind of events.
func (o *topOptions) options(log io.Writer) agent.Options {
	options := agent.Options{
		Filter: len(o.targets.Words) > 0, Version: version.String(), Log: topLogger(log),
		MaxContexts: self.MaxContexts() / 2, // the other half is for events
	}
	o.clock.Apply(&options)
	return options
}

// topLogger logs warnings.
func topLogger(w io.Writer) *slog.Logger { return new(cli.Log).Logger(w) }

// A topWindow is a closed window of CPU time, or of one kind of events.
type topWindow struct {
	profile *profile.Profile
	events  bool
	kind    profile.EventKind
}

// run shows the agent's windows until the user quits, ctx ends or the agent fails.
func (o *topOptions) run(ctx context.Context, a *agent.Agent, warnings *warnings) error {
	ctx, stop := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	leave, err := o.follower.join(a)
	if err != nil {
		return err
	}
	defer leave()
	failed := make(chan error, 4)
	windows := make(chan topWindow)
	news := make(chan string)
	show := func(w topWindow) {
		select {
		case windows <- w:
		case <-ctx.Done():
		}
	}
	background := func(do func() error) {
		tasks.Go(func() {
			// The terminal must be restored also after a panic, which only this goroutine's owner
			// can do.
			if err := proc.Catch(do); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	recorder := &eventRecorder{options: o.options(warnings), follower: o.follower, interval: o.interval,
		budget: o.share, wanted: make(chan int, 1), states: make(chan eventState), show: show}
	background(func() error { return a.Run(ctx) })
	background(func() error {
		return a.Follow(ctx, o.interval, func(p *profile.Profile) { show(topWindow{profile: p}) })
	})
	background(func() error { return recorder.run(ctx) })
	background(func() error { return o.follow(ctx, news) })

	t, err := openTerminal()
	if err != nil {
		return err
	}
	defer t.close()
	model := top.NewModel(runtime.NumCPU())
	screen := top.NewScreen(model)
	if !t.utf8() {
		screen.ASCII()
	}
	own := newOwnTime()
	for {
		recorder.want(screen.Wants())
		t.draw(screen)
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case s := <-recorder.states:
			screen.Recording(s.kind, s.text)
		case text := <-news:
			screen.Say(text)
		case w := <-windows:
			if w.events {
				model.ObserveEvents(w.kind, w.profile)
				break
			}
			model.Observe(w.profile)
			screen.Own(own.share())
			screen.Stopped(targets.StoppedNote(o.follower.pids()))
			if text := warnings.fresh(); text != "" {
				screen.Say(text)
			}
		case in, open := <-t.input:
			if !open { // the terminal is gone
				return nil
			}
			if in.all {
				t.anew()
			}
			if in.key == (top.Key{}) {
				break
			}
			command := screen.Press(in.key)
			switch {
			case command.Quit:
				return nil
			case command.Suspend:
				if err := t.suspend(); err != nil {
					return err
				}
			case command.Write != nil:
				screen.Say(writeShown(command.Write))
			}
		}
	}
}

// follow looks at the chosen processes once an interval, until ctx ends.
func (o *topOptions) follow(ctx context.Context, news chan<- string) error {
	for look := time.NewTicker(o.interval); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		text, err := o.follower.look(ctx)
		if err != nil {
			return fmt.Errorf("look for processes of -p: %w", err)
		}
		if text == "" {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case news <- text:
		}
	}
}

// writeShown writes what is shown to a file, in the formats of record's -o for windows, and returns
// what to say of it.
func writeShown(w *top.Write) string {
	if err := writeWindows(w.Path, w.Profiles, contentOf(w)); err != nil {
		return "not written: " + err.Error()
	}
	return "written to " + w.Path
}

func contentOf(w *top.Write) sink.Content {
	if w.Events {
		return sink.OfEvents(w.Kind)
	}
	return sink.Time
}

// writeWindows writes consecutive windows to one file.
func writeWindows(path string, profiles []*profile.Profile, content sink.Content) error {
	if path == sink.Stdout {
		return errors.New("the terminal is in use: give a file")
	}
	if format, err := sink.FormatOf(path); err == nil && format == sink.FormatCollapsed {
		return errors.New("collapsed stacks have no windows: use .html, .pb.gz, .json or .txt")
	}
	if err := sink.CheckWritable(path); err != nil {
		return err
	}
	windows := sink.NewWindows(content)
	for _, p := range profiles {
		if err := windows.Add(p); err != nil {
			return err
		}
	}
	stored, err := windows.Profile()
	if err != nil {
		return err
	}
	return sink.WriteStored(path, io.Discard, stored)
}

// An ownTime measures the CPU time of this process.
type ownTime struct {
	at   time.Time
	used time.Duration
}

func newOwnTime() *ownTime { return &ownTime{time.Now(), usedTime()} }

// share is the share of a CPU since the last call.
func (o *ownTime) share() float64 {
	now, used := time.Now(), usedTime()
	share := (used - o.used).Seconds() / max(now.Sub(o.at).Seconds(), 1e-3)
	o.at, o.used = now, used
	return share
}

func usedTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// warnings hold the lines of a log while the screen is in use, and print them when it is not. Lines
// are bounded in number; equal ones are held once.
type warnings struct {
	lock  sync.Mutex
	lines []string
	seen  int // of lines, by fresh
	more  int
}

const maxWarnings = 20

// Write implements io.Writer for a log, which writes a line at a time.
func (w *warnings) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for line := range bytes.Lines(p) {
		text := strings.TrimRight(string(line), "\n")
		known := false
		for _, old := range w.lines {
			known = known || old == text
		}
		switch {
		case known:
		case len(w.lines) < maxWarnings:
			w.lines = append(w.lines, text)
		default:
			w.more++
		}
	}
	return len(p), nil
}

// fresh is the last line since the last call; "" if there is none.
func (w *warnings) fresh() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.seen == len(w.lines) {
		return ""
	}
	w.seen = len(w.lines)
	return w.lines[w.seen-1]
}

func (w *warnings) print(to io.Writer) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for _, line := range w.lines {
		fmt.Fprintln(to, line)
	}
	if w.more > 0 {
		fmt.Fprintln(to, stored.Plural(w.more, "more warning"))
	}
}
