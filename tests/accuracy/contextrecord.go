package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A contextSetting is one way to record contexts.
type contextSetting struct {
	name  string // as tables have it
	hz    int
	flags []string // flags of the agent
}

// A contextLength is how long a program is recorded.
type contextLength struct {
	warmup  time.Duration // 0: it is recorded from its first iteration on
	window  time.Duration
	windows int
	least   int // windows that there must be: more than one to compare
}

// vmWarmup is enough for the reference guest, which compiles before it runs.
const vmWarmup = time.Second

func (l contextLength) whole() time.Duration { return time.Duration(l.windows) * l.window }

// when is the time of a window since the first began.
func (l contextLength) when(window int) string {
	return fmt.Sprintf("%.0f to %.0f s", float64(window)*l.window.Seconds(), float64(window+1)*l.window.Seconds())
}

// record records a program in all ways at once, each with an agent of its own: so they cover the
// same seconds of the same run, and differ only in their settings.
func (s *contexts) record(ctx context.Context, m meter, t contextTrial) (r contextResult, err error) {
	g, err := t.start(ctx, m)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	job := contextJob{m.agent, g, s.settings, s.length}
	if t.vm {
		job.length.warmup = min(job.length.warmup, vmWarmup)
	}
	record := job.warm
	if job.length.warmup == 0 {
		record = job.fromStart
	}
	agents, did, err := record(ctx)
	if err != nil {
		agents.abandon()
		return r, err
	}
	recordings, err := agents.finish()
	if err != nil {
		return r, err
	}
	r = contextResult{contextTrial: t, iteration: did.Iteration()}
	for i, recording := range recordings {
		read, err := readContexts(recording, g.pid(), s.length)
		if err != nil {
			return r, fmt.Errorf("%s: %w; the agent says:\n%s", s.settings[i].name, err, recording.Output)
		}
		r.recorded = append(r.recorded, read)
	}
	s.print(m.out, r)
	return r, nil
}

// A contextJob is a guest to record.
type contextJob struct {
	agent    profiler.Agent
	guest    contextGuest
	settings []contextSetting
	length   contextLength
}

// fromStart makes the guest begin to work once all agents sample. That is a second or more after
// their first window began, so an equally long part of a window remains after the last. The agents
// are returned in any case.
func (j contextJob) fromStart(ctx context.Context) (contextAgents, harness.Worked, error) {
	agents, err := j.start(ctx, 0)
	if err != nil {
		return agents, harness.Worked{}, err
	}
	for _, run := range agents {
		if err := run.WaitSampling(); err != nil {
			return agents, harness.Worked{}, err
		}
	}
	work := harness.StartWork(ctx, j.guest.runFor)
	sleep(ctx, j.length.whole())
	err = agents.interrupt()
	did, failed := work.Finish()
	return agents, did, errors.Join(err, failed)
}

// warm lets the guest work all the time, while the agents come and go.
func (j contextJob) warm(ctx context.Context) (contextAgents, harness.Worked, error) {
	work := harness.StartWork(ctx, j.guest.runFor)
	sleep(ctx, j.length.warmup)
	agents, err := j.start(ctx, j.length.whole())
	for _, run := range agents {
		if err == nil {
			run.Wait() // finish reports how it ended
		}
	}
	did, failed := work.Finish()
	return agents, did, errors.Join(err, failed)
}

// maxWindows is how many windows a file may have.
const maxWindows = 4096

// start starts agents that record for that long, 0 for until they are interrupted.
func (j contextJob) start(ctx context.Context, d time.Duration) (agents contextAgents, err error) {
	if d == 0 && j.length.windows > 1 {
		d = min(time.Hour, maxWindows*j.length.window)
	}
	for _, s := range j.settings {
		extra := s.flags
		if j.length.windows > 1 {
			extra = append([]string{"--window", j.length.window.String()}, extra...)
		}
		run, err := j.agent.Start(ctx, profiler.Options{PID: j.guest.pid(), Frequency: s.hz, Duration: d, Extra: extra})
		if err != nil {
			return agents, err
		}
		agents = append(agents, run)
	}
	return agents, nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// contextAgents record one guest, in the order of their settings.
type contextAgents []*profiler.AgentRun

// interrupt ends all agents at about the same time.
func (a contextAgents) interrupt() error {
	var errs []error
	for _, run := range a {
		errs = append(errs, run.Signal(syscall.SIGINT))
	}
	return errors.Join(errs...)
}

func (a contextAgents) finish() (recordings []*profiler.Recording, err error) {
	for _, run := range a {
		recording, failed := run.Finish()
		err = errors.Join(err, failed)
		recordings = append(recordings, recording)
	}
	return recordings, err
}

// abandon ends the agents that still run. Their output is not used.
func (a contextAgents) abandon() {
	for _, run := range a {
		run.Stop()
	}
}

// A contextGuest is a running program that works on request.
type contextGuest interface {
	// runFor has it do whole iterations until that much time has passed. It fails if what they
	// compute is wrong.
	runFor(d time.Duration) (iterations int, err error)
	pid() int
	close() error
}

func (t contextTrial) start(ctx context.Context, m meter) (contextGuest, error) {
	if !t.vm {
		guest, err := suite.Start(ctx, t.jdk, t.program)
		if err != nil {
			return nil, err
		}
		return suiteGuest{guest}, nil
	}
	vm, err := m.vm()
	if err != nil {
		return nil, err
	}
	run, err := vm.Start(ctx, guests.VMOptions{Program: t.program})
	if err != nil {
		return nil, err
	}
	return vmGuest{run}, nil
}

// A suiteGuest is a real Java program.
type suiteGuest struct{ *suite.Guest }

func (g suiteGuest) runFor(d time.Duration) (int, error) { return g.RunFor(d) }
func (g suiteGuest) pid() int                            { return g.PID() }
func (g suiteGuest) close() error                        { return g.Close() }

func (g vmGuest) runFor(d time.Duration) (int, error) {
	s, err := g.run.RunFor(d)
	return int(s.Iterations), err
}
