package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/term"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/events"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/top"
	"github.com/vmprof-agent/vmprof-agent/version"
)

const topUsage = `Usage: vmprof-agent top [flags]

Show live, in the terminal, which services use the CPUs, and their methods,
threads, allocations and waits for locks.

  vmprof-agent top            the whole machine
  vmprof-agent top -p shop    one service

Keys: ? shows them all, q quits.

Flags:
`

// topOptions are the flags of top.
type topOptions struct {
	targets   targets
	frequency int
	interval  time.Duration
	budget    string
	share     float64
}

func parseTop(args []string, stderr io.Writer) (*topOptions, error) {
	var o topOptions
	fs := newFlags("top", topUsage, stderr)
	o.targets.add(fs, "show process `PID` (or name, pattern) and new children")
	o.interval = 2 * time.Second
	fs.VarP(seconds{&o.interval}, "interval", "i", "refresh every `TIME`")
	fs.IntVarP(&o.frequency, "frequency", "F", agent.DefaultFrequency, "take `HZ` samples per second of CPU time")
	fs.StringVar(&o.budget, "budget", "1%", "limit CPU `SHARE` of allocations and locks")
	if err := parseFlags(fs, topUsage, args); err != nil {
		return nil, err
	}
	const shortest, longest = 200 * time.Millisecond, time.Minute
	var err error
	if o.share, err = parseShare(o.budget); err != nil {
		return nil, usageError(fmt.Sprintf("--budget %s: %v", o.budget, err))
	}
	switch {
	case fs.NArg() > 0:
		return nil, unexpected(fs.Arg(0), "; choose processes with -p")
	case o.frequency < 1:
		return nil, usageError("-F needs a frequency of at least 1 Hz")
	case o.interval < shortest || o.interval > longest:
		return nil, usageError(fmt.Sprintf("--interval needs a time from %v to %v", shortest, longest))
	}
	return &o, nil
}

// topVerb is the verb.
func topVerb(ctx context.Context, args []string, _, stderr io.Writer) error {
	o, err := parseTop(args, stderr)
	if err != nil {
		return err
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return usageError("top needs a terminal; use record to write a profile into a file")
	}
	pids, err := o.targets.find(ctx)
	if err != nil {
		return err
	}
	limitMemory(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := &terminal{options: o, pids: pids, windows: make(chan topWindow, 4), ended: make(chan error, 1+int(profile.EventKinds)), model: top.NewModel(runtime.NumCPU())}
	defer t.close()
	// Errors are easier to read before the screen is taken.
	if err := t.record(ctx, agent.Options{Frequency: o.frequency}, false); err != nil {
		return err
	}
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("open the terminal: %w; set TERM to its type, such as xterm-256color", err)
	}
	if err := screen.Init(); err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	defer screen.Fini()
	t.screen = screen
	return t.run(ctx)
}

// A topWindow is what an agent recorded in an interval. Those of events have nothing else.
type topWindow struct {
	profile *profile.Profile
	events  bool
}

// A terminal is a running top.
type terminal struct {
	options *topOptions
	pids    []int
	agents  []*agent.Agent
	windows chan topWindow
	ended   chan error
	screen  tcell.Screen
	model   *top.Model
	view    top.View
	kept    []*profile.Profile // the last ones, to be written
	opened  chan openedAgent
}

// record begins to record.
func (t *terminal) record(ctx context.Context, options agent.Options, events bool) error {
	a, err := t.open(ctx, options)
	if err != nil {
		return err
	}
	t.follow(ctx, a, events)
	return nil
}

func (t *terminal) open(ctx context.Context, options agent.Options) (*agent.Agent, error) {
	options.PIDs, options.Version = t.pids, version.String()
	options.MaxContexts = maxContexts(debug.SetMemoryLimit(-1))
	return agent.New(ctx, options)
}

// follow hands over windows of an agent until ctx ends.
func (t *terminal) follow(ctx context.Context, a *agent.Agent, events bool) {
	t.agents = append(t.agents, a)
	go func() { t.ended <- a.Run(ctx) }()
	go a.Follow(ctx, t.options.interval, func(p *profile.Profile) {
		select {
		case t.windows <- topWindow{p, events}:
		case <-ctx.Done():
		}
	})
}

func (t *terminal) close() {
	for _, a := range t.agents {
		a.Close()
	}
}

// An openedAgent records a kind of events, or could not be opened.
type openedAgent struct {
	kind  profile.EventKind
	agent *agent.Agent
	err   error
}

// wanted begins to record the events that the table shows, if nobody does. That takes a moment, in which the screen goes on.
func (t *terminal) wanted(ctx context.Context) {
	kind, needed := t.view.Kind()
	if !needed || t.view.Recorded[kind] {
		return
	}
	t.view.Recorded[kind] = true
	options := agent.Options{NoTime: true, Events: &events.Options{Budget: t.options.share}}
	options.Events.Kinds[kind] = true
	go func() {
		a, err := t.open(ctx, options)
		select {
		case t.opened <- openedAgent{kind, a, err}:
		case <-ctx.Done():
			if err == nil {
				a.Close()
			}
		}
	}()
}

// run draws until the user quits, ctx ends or an agent does.
func (t *terminal) run(ctx context.Context) error {
	t.opened = make(chan openedAgent)
	quit := make(chan struct{})
	defer close(quit)
	input := make(chan tcell.Event, 16)
	go t.screen.ChannelEvents(input, quit)
	t.draw()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-t.ended:
			return err
		case o := <-t.opened:
			if o.err != nil {
				t.view.Recorded[o.kind] = false
				t.view.Table, t.view.Status = top.Methods, fmt.Sprintf("%v: %v", o.kind, o.err)
				break
			}
			t.follow(ctx, o.agent, true)
		case w := <-t.windows:
			t.add(w)
		case event, open := <-input:
			if !open {
				return errors.New("the terminal has gone")
			}
			if t.act(event) {
				return nil
			}
			t.wanted(ctx)
		}
		t.draw()
	}
}

// keptFor is how much w writes.
const keptFor = time.Minute

func (t *terminal) add(w topWindow) {
	switch {
	case t.view.Paused:
	case w.events:
		t.model.AddEvents(w.profile)
	default:
		t.model.Add(w.profile)
		t.kept = append(t.kept, w.profile)
		t.kept = slices.DeleteFunc(t.kept, func(p *profile.Profile) bool { return w.profile.Start.Sub(p.Start) >= keptFor })
	}
}

var topKeys = map[tcell.Key]top.Key{
	tcell.KeyUp: top.Up, tcell.KeyDown: top.Down, tcell.KeyLeft: top.Left, tcell.KeyRight: top.Right, tcell.KeyTab: top.Right,
	tcell.KeyBacktab: top.Left, tcell.KeyEnter: top.Enter, tcell.KeyEscape: top.Escape, tcell.KeyBackspace: top.Backspace, tcell.KeyBackspace2: top.Backspace,
}

// act acts on an event; true ends the program.
func (t *terminal) act(event tcell.Event) (quit bool) {
	switch e := event.(type) {
	case *tcell.EventResize:
		t.screen.Sync()
	case *tcell.EventKey:
		key, known := topKeys[e.Key()]
		switch {
		case e.Key() == tcell.KeyCtrlC:
			return true
		case known:
			t.view.Press(key)
		case e.Key() != tcell.KeyRune:
		case !t.view.Typing && e.Rune() == 'q':
			return true
		case !t.view.Typing && e.Rune() == 'w':
			t.write()
		default:
			t.view.Type(e.Rune())
		}
	}
	return false
}

// write writes the last minute to a new file.
func (t *terminal) write() {
	path := "vmprof-top-" + time.Now().Format("20060102-150405") + ".pb.gz"
	err := func() error {
		windows := sink.NewWindows(sink.Time)
		for _, p := range t.kept {
			if err := windows.Add(p); err != nil {
				return err
			}
		}
		stored, err := windows.Profile()
		if err != nil {
			return err
		}
		return sink.WriteStored(path, io.Discard, stored)
	}()
	if t.view.Status = "written to " + path; err != nil {
		t.view.Status = err.Error()
	}
}

var topStyles = map[top.Style]tcell.Style{
	top.Plain: tcell.StyleDefault, top.Strong: tcell.StyleDefault.Bold(true), top.Selected: tcell.StyleDefault.Reverse(true),
	top.Faint: tcell.StyleDefault.Dim(true), top.Warning: tcell.StyleDefault.Foreground(tcell.ColorRed),
}

func (t *terminal) draw() {
	width, height := t.screen.Size()
	t.screen.Clear()
	for y, line := range t.view.Lines(t.model, width, height) {
		style := topStyles[line.Style]
		x := 0
		for text := line.Text; text != "" && x < width; {
			rest, columns := t.screen.Put(x, y, text, style)
			if columns == 0 || rest == text {
				break
			}
			text, x = rest, x+columns
		}
		for ; line.Style == top.Selected && x < width; x++ {
			t.screen.Put(x, y, " ", style)
		}
	}
	t.screen.Show()
}
