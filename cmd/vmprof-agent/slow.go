package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/slow"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// slowFlags have the slowest calls of one method kept while wall time is recorded.
type slowFlags struct {
	text   string // the method; empty: none
	method hotspot.Method
}

func (f *slowFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.text, "slow", "", "wall: keep the slowest calls of `METHOD`")
}

// check fails where calls cannot be followed, given what else is recorded.
func (f *slowFlags) check(targets *targets, e *eventFlags) (err error) {
	switch {
	case f.text == "":
		return nil
	case len(targets.words) == 0:
		return misuse("--slow needs the JVMs whose calls are to be followed: -p")
	case e.calls || e.events.MonitorEnters:
		return misuse("--slow sets breakpoints of its own, and counts all calls: remove -e calls and " +
			"--monitor-enters")
	case !slices.ContainsFunc(e.parts(), part.wall):
		return misuse("--slow needs -e wall")
	}
	if f.method, err = hotspot.ParseMethod(f.text); err != nil {
		return misuse(err.Error())
	}
	return nil
}

// wall reports whether a part is wall time: slow calls go into its file.
func (p part) wall() bool {
	kind, ofEvents := p.content.Events()
	return ofEvents && kind == profile.Wall
}

// content is what the file of a part has in addition.
func (f *slowFlags) content(p part) sink.Content {
	if f.text == "" || !p.wall() {
		return 0
	}
	return sink.Slow | sink.CallCounts
}

// apply has the agent follow the method.
func (f *slowFlags) apply(ctx context.Context, pids []int, budget float64, to *agent.Options) error {
	if f.text == "" {
		return nil
	}
	if pids = jvms(ctx, pids); len(pids) == 0 {
		return errors.New("--slow: none of the processes is a JVM")
	}
	to.Slow = &slow.Options{PIDs: pids, Method: f.method, Share: budget}
	return nil
}

// settle waits until a method that is called too often has shown.
func (f *slowFlags) settle(ctx context.Context, a *agent.Agent) error {
	if f.text == "" {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return f.err(a)
}

// err is why calls are not followed any more.
func (f *slowFlags) err(a *agent.Agent) error {
	if err := a.SlowErr(); err != nil {
		return fmt.Errorf("--slow: %w", err)
	}
	return nil
}
