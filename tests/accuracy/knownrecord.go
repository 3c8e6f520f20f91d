package main

import (
	"cmp"
	"context"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A seen is a recording of a run, and what the run did in truth.
type seen struct {
	truth     events.Truth
	recording *profiler.Recording
}

// seeRun records a run of a guest from before its beginning to after its end.
func (m meter) seeRun(ctx context.Context, guest *events.Guest, threads, amount int, flags ...string) (s seen, err error) {
	s.recording, err = m.recordWork(ctx, guest.PID(), func() error {
		var err error
		s.truth, err = guest.Run(threads, amount)
		return err
	}, flags...)
	return s, err
}

// recordWork records what is done by work, all of it.
func (m meter) recordWork(ctx context.Context, pid int, work func() error, flags ...string) (*profiler.Recording, error) {
	run, err := m.agent.Start(ctx, profiler.Options{PID: pid, Extra: flags})
	if err != nil {
		return nil, err
	}
	if err = run.WaitAttached(); err == nil {
		err = work()
	}
	recording, stopped := run.Stop() // also one whose guest has failed
	if err := cmp.Or(err, stopped); err != nil {
		return nil, err
	}
	return recording, recording.Stats.CheckIdentities()
}
