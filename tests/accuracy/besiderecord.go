package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jfr"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A besideSample is a sample of a guest's own thread, in the form common to all contenders.
type besideSample struct {
	methods []string // methods of Java, innermost first, inlined ones too
	vague   bool     // the sample is [inlined in M], where M is the first of methods
	count   int64
}

// A besideRecording is what a contender recorded between two moments.
type besideRecording struct {
	samples    []besideSample
	began, end time.Time
}

// besideSettle is the time after a profiler's start until its samples count.
const besideSettle = 300 * time.Millisecond

// beside makes a trial.
func (m meter) beside(ctx context.Context, t besideTrial) (tally besideTally, err error) {
	flavour := t.flavour()
	var async profiler.Async
	if t.contender == asyncCPU || t.contender == asyncFromOutset {
		if async, err = profiler.FindAsync(); err != nil {
			return besideTally{}, err
		}
	}
	if t.contender == asyncFromOutset {
		flavour.Flags = append(flavour.Flags, "-agentpath:"+async.Library)
	}
	guest, err := guests.Start(ctx, t.jdk, t.program, flavour)
	if err != nil {
		return besideTally{}, err
	}
	defer func() {
		if ended := guest.Close(); err != nil {
			err = errors.Join(err, ended) // the exit status of a crashed guest gives the reason
		}
	}()
	time.Sleep(besideWarmup)

	var r besideRecording
	switch t.contender {
	case thisAgent:
		r, err = m.besideAgent(ctx, t, guest.PID())
	case jfrExecution:
		r, err = m.besideJFR(ctx, t, guest.PID(), jfr.Setting{Event: jfr.ExecutionSample, Name: "period",
			Value: fmt.Sprintf("%d ms", besidePeriod.Milliseconds())})
	case jfrCPUTime:
		r, err = m.besideJFR(ctx, t, guest.PID(), jfr.Setting{Event: jfr.CPUTimeSample, Name: "throttle",
			Value: fmt.Sprintf("%dms", besidePeriod.Milliseconds())})
	case asyncCPU, asyncFromOutset:
		r, err = m.besideAsync(ctx, t, guest.PID(), async)
	}
	if err != nil {
		return besideTally{}, err
	}
	truth, err := guest.Truth(r.began, r.end)
	if err != nil {
		return besideTally{}, err
	}
	return tallyBeside(truth, r.samples), nil
}

// besideTime is how long a recording takes.
func (m meter) besideTime() time.Duration { return max(m.how.recording, 2*time.Second) }

func (m meter) besideAgent(ctx context.Context, t besideTrial, pid int) (besideRecording, error) {
	recording, err := m.agent.Record(ctx, profiler.Options{
		PID: pid, Frequency: int((time.Second + besidePeriod/2) / besidePeriod), Duration: m.besideTime(),
	})
	if err != nil {
		return besideRecording{}, err
	}
	r := besideRecording{began: time.Unix(0, recording.Profile.TimeNanos)}
	r.end = r.began.Add(time.Duration(recording.Profile.DurationNanos))
	for _, s := range stacks.OnThread(stacks.FromProfile(recording.Profile), t.program.Thread) {
		r.samples = append(r.samples, ofAgent(s))
	}
	return r, nil
}

func ofAgent(s stacks.Stack) besideSample {
	sample := besideSample{count: s.Count}
	for _, f := range s.Frames {
		switch {
		case !f.Java():
		case stacks.InlinedIn(f.Function):
			sample.vague = sample.vague || len(sample.methods) == 0
		default:
			sample.methods = append(sample.methods, f.Function)
		}
	}
	return sample
}

func (m meter) besideJFR(ctx context.Context, t besideTrial, pid int, setting jfr.Setting) (besideRecording, error) {
	return m.besideFile(ctx, t, setting.Event, func(path string) (stop func() error, err error) {
		recording, err := jfr.Start(ctx, t.jdk, pid, path, setting)
		if err != nil {
			return nil, err
		}
		return func() error { return recording.Stop(ctx) }, nil
	})
}

func (m meter) besideAsync(ctx context.Context, t besideTrial, pid int, async profiler.Async) (besideRecording, error) {
	return m.besideFile(ctx, t, jfr.ExecutionSample, func(path string) (stop func() error, err error) {
		return func() error { return async.Stop(ctx, pid) }, async.Start(ctx, pid, besidePeriod, path)
	})
}

// besideFile records with a profiler that is started and stopped, and writes a file of events of
// that type.
func (m meter) besideFile(
	ctx context.Context, t besideTrial, event string, start func(path string) (func() error, error),
) (r besideRecording, err error) {
	dir, err := os.MkdirTemp(m.dir, "beside-")
	if err != nil {
		return r, fmt.Errorf("create a directory for the recording: %w", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "recording.jfr")
	stop, err := start(path)
	if err != nil {
		return r, err
	}
	time.Sleep(besideSettle)
	r.began = time.Now()
	time.Sleep(m.besideTime())
	r.end = time.Now()
	if err := stop(); err != nil {
		return r, err
	}
	list, err := jfr.Read(ctx, t.jdk, path, event)
	if err != nil {
		return r, err
	}
	for _, e := range list {
		if strings.HasPrefix(e.Thread, t.program.Thread) && !e.Start.Before(r.began) && e.Start.Before(r.end) {
			r.samples = append(r.samples, ofEvent(e))
		}
	}
	if len(r.samples) == 0 {
		return r, errors.New("no sample of the guest's threads")
	}
	return r, nil
}

func ofEvent(e jfr.Event) besideSample {
	sample := besideSample{count: 1}
	for _, f := range e.Stack {
		if !f.Native {
			sample.methods = append(sample.methods, f.Method)
		}
	}
	return sample
}
