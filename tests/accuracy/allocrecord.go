package main

import (
	"context"
	"errors"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// allocWarmups is how many times longer than guests with known truth a real program is warmed up: compiled code does not
// allocate what escape analysis finds to stay in a method.
const allocWarmups = 10

// recordAllocations records a program at work. Samples and exact counts are of the same time, so it does not matter when
// the recording begins and ends.
func (m meter) recordAllocations(ctx context.Context, t allocTrial) (_ *profiler.Recording, err error) {
	guest, err := suite.Start(ctx, t.jdk, t.program, t.flags()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	if _, err := guest.RunFor(allocWarmups * m.how.warmup); err != nil {
		return nil, err
	}
	run, err := m.agent.Start(ctx, profiler.Options{
		PID: guest.PID(), Duration: t.length, Extra: []string{"-e", "alloc", "--exact-alloc"},
	})
	if err != nil {
		return nil, err
	}
	type ending struct {
		recording *profiler.Recording
		err       error
	}
	ended := make(chan ending, 1)
	go func() {
		recording, err := run.Finish()
		ended <- ending{recording, err}
	}()
	for {
		select {
		case e := <-ended:
			return e.recording, e.err
		default:
		}
		if _, err := guest.Run(1); err != nil {
			return nil, err // the recording ends by itself
		}
	}
}
