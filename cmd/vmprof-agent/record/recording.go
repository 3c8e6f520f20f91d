package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/probes"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/self"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
	"github.com/vmprof-agent/vmprof-agent/version"
)

// A plan is what record does, once it is known of which processes, and to which files: nothing has
// been changed, started or written.
type plan struct {
	*recordOptions
	stdout, stderr io.Writer
	log            *slog.Logger
	chosen         chosen
	outputs        []output
	together       []string // files that have all that is recorded
}

// plan finds the processes, the probes of values and the places for files.
func (o *recordOptions) plan(ctx context.Context, stdout, stderr io.Writer) (*plan, error) {
	var err error
	if o.pids, err = o.targets.Find(ctx); err != nil {
		return nil, err
	}
	if o.Exact != "" && len(o.command) == 0 && len(o.pids) != 1 {
		return nil, cli.Misuse("--exact counts the calls of one JVM: select it with -p")
	}
	p := &plan{recordOptions: o, stdout: stdout, stderr: stderr, log: o.log.Logger(stderr),
		chosen: chosenProcesses(o.pids)}
	self.LimitMemory(p.log)
	if err := probes.FindValues(ctx, o.Events.Values, o.pids); err != nil {
		return nil, err
	}
	p.outputs, p.together = o.outputs()
	return p, o.checkOutputs(p.outputs, p.together)
}

// String says what will be done, in a line.
func (p *plan) String() string {
	what := make([]string, 0, len(p.Names))
	for _, name := range p.Names {
		if name == "cpu" {
			name = fmt.Sprintf("cpu at %d Hz", p.clock.Frequency)
		}
		what = append(what, name)
	}
	of := "the whole machine"
	switch {
	case len(p.command) > 0:
		of = strings.Join(p.command, " ")
	case len(p.pids) > 0:
		of = fmt.Sprintf("processes %d and their children", p.pids)
	}
	length := "until it ends"
	if p.duration > 0 {
		length = "for " + p.duration.String()
	}
	return fmt.Sprintf("plan: record %s of %s, %s, to %s", strings.Join(what, ", "), of, length,
		strings.Join(p.files(), ", "))
}

// files are the paths of all files that record writes.
func (p *plan) files() (paths []string) {
	for _, out := range p.outputs {
		paths = append(paths, out.path)
	}
	return append(paths, p.together...)
}

// A recording is a plan that is carried out.
type recording struct {
	*plan
	child   *command     // nil without COMMAND
	agent   *agent.Agent // nil once all that it knows has been taken over
	profile *profile.Profile
	windows *rotation // nil without --window
	use     agentUse
	idle    []string // notes on processes that hardly ran
	stopped bool     // the processes did not run because something stopped them

	childErr, countErr error
}

// start starts COMMAND, which waits, and loads all that recording needs. Whether it fails or not, the
// recording is to be closed.
func (p *plan) start(ctx context.Context) (*recording, error) {
	r := &recording{plan: p}
	if len(p.command) > 0 {
		out := p.stdout
		if slices.Contains(p.output, sink.Stdout) {
			out = p.stderr
		}
		var err error
		if r.child, err = startCommand(p.command, out, p.stderr); err != nil {
			return r, err
		}
		p.pids = []int{r.child.pid()}
	}
	options := agent.Options{
		PIDs: p.pids, Version: version.String(), Log: p.log,
		Settle: self.Settle(append(p.files(), p.stats)...), MaxContexts: self.MaxContexts(),
	}
	p.clock.Apply(&options)
	p.Apply(&options)
	p.contexts.Apply(&options)
	if err := p.slow.Apply(ctx, p.pids, p.Events.Budget, &options); err != nil {
		return r, err
	}
	var err error
	if r.agent, err = agent.New(ctx, options); err != nil {
		return r, err
	}
	if err := p.count.open(ctx, p.recordOptions, p.log); err != nil {
		return r, err
	}
	if err := p.slow.Settle(ctx, r.agent); err != nil {
		return r, err
	}
	return r, p.chosen.checkRunning(p.log)
}

// close takes everything out of the kernel, and leaves COMMAND to itself or, if the recording was
// interrupted, ends it.
func (r *recording) close(interrupted bool) {
	r.count.close()
	if r.agent != nil {
		r.agent.Close()
	}
	if r.child != nil {
		r.child.leave(interrupted)
	}
}

// run records until the time is over, COMMAND or all chosen processes have ended, or ctx has, and
// takes over what was recorded.
func (r *recording) run(ctx context.Context) error {
	a := r.agent
	run, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(run) }()
	waitReady(ctx, a, r.stderr)
	w := a.Open(nil)
	r.count.take() // what was counted before
	r.log.Debug("recording")
	began := time.Now()
	used := targets.UsedBy(r.pids)
	r.windows = r.rotate(ctx, w)
	bar := newProgress(r.stderr, began, r.duration)
	if r.child != nil {
		bar.w = nil // COMMAND writes to the same terminal
	}
	r.childErr = r.wait(ctx, a, r.child, &r.chosen, ended, bar)
	lasted := time.Since(began)
	r.idle, r.stopped = targets.IdleNotes(used, time.Second/time.Duration(r.clock.Frequency))
	w, windowErr := r.windows.stop(w)
	counts, countErr := r.count.finish()
	r.countErr = errors.Join(countErr, r.slow.Err(a))
	stop()
	if err := <-ended; err != nil {
		return err
	}
	if windowErr != nil {
		return windowErr
	}
	p, err := w.Close(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if r.chosen.ended && lasted < unseenEnd && r.windows == nil && !recorded(p) {
		return r.chosen.endedBefore()
	}
	if r.child != nil {
		nameCommand(p, r.child.pid(), r.command)
	}
	r.count.fill(p, counts, true)
	r.profile, r.use = p, useOf(a)
	return nil
}

// finish writes the files and says what was recorded. A full disk takes files, but not the summary.
func (r *recording) finish(ctx context.Context) error {
	// All names are in the profile, so that the agent's own tables can make room for the files.
	r.agent.Close()
	r.agent = nil
	runtime.GC()
	r.rescue = newRescuer(ctx, r.stderr)
	accounts, failed, err := r.store(r.stdout, r.profile, r.windows, r.outputs)
	if err != nil {
		return err
	}
	r.together, err = r.writeTogether(r.stdout, r.outputs, r.together)
	failed = errors.Join(failed, err)
	if r.child != nil && ctx.Err() == nil && r.child.running() {
		fmt.Fprintf(r.stderr, "vmprof-agent: the recording ended after %v (-d); %s still runs as process %d\n",
			r.duration, r.command[0], r.child.pid())
	}
	if r.stats != "" {
		failed = errors.Join(failed, writeStats(r.stats, r.use, accounts))
	}
	summary := r.stdout
	if slices.Contains(r.output, sink.Stdout) || r.child != nil { // stdout is COMMAND's
		summary = r.stderr
	}
	if err := r.summarize(summary, r.outputs, r.together, r.stopped); err != nil || failed != nil {
		return errors.Join(failed, err)
	}
	for _, note := range r.idle {
		fmt.Fprintln(summary, note)
	}
	for _, out := range r.outputs {
		if out.Content == sink.OfEvents(profile.Values) && !out.again {
			if err := probes.ValuesMissed(context.WithoutCancel(ctx), r.Events.Values, r.use.health.Events,
				out.stored); err != nil {
				return err
			}
		}
	}
	if r.countErr != nil {
		return fmt.Errorf("%w. Everything else that was recorded is complete", r.countErr)
	}
	if err := r.against.compare(summary, r.outputs[0]); err != nil {
		return err
	}
	return r.childErr
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
