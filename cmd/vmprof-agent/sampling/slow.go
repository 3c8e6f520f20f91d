package sampling

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
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
)

// Slow have the slowest calls of one method kept while wall time is recorded.
type Slow struct {
	Text   string // the method; empty: none
	method hotspot.Method
}

// Add defines the flag.
func (f *Slow) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.Text, "slow", "", "wall: keep the slowest calls of `METHOD`")
}

// Check fails where calls cannot be followed, given what else is recorded.
func (f *Slow) Check(targets *targets.Flag, e *Flags) (err error) {
	switch {
	case f.Text == "":
		return nil
	case len(targets.Words) == 0:
		return cli.Misuse("--slow needs the JVMs whose calls are to be followed: -p")
	case e.Calls || e.Events.MonitorEnters:
		return cli.Misuse("--slow sets breakpoints of its own, and counts all calls: remove -e calls and " +
			"--monitor-enters")
	case !slices.ContainsFunc(e.Parts(), func(p Part) bool { return isWall(p.Content) }):
		return cli.Misuse("--slow needs -e wall")
	}
	if f.method, err = hotspot.ParseMethod(f.Text); err != nil {
		return cli.Misuse(err.Error())
	}
	return nil
}

// isWall reports whether a part is wall time: slow calls go into its file.
func isWall(part sink.Content) bool {
	kind, ofEvents := part.Events()
	return ofEvents && kind == profile.Wall
}

// Content is what the file of a part has in addition.
func (f *Slow) Content(part sink.Content) sink.Content {
	if f.Text == "" || !isWall(part) {
		return 0
	}
	return sink.Slow | sink.CallCounts
}

// Apply has the agent follow the method.
func (f *Slow) Apply(ctx context.Context, pids []int, budget float64, to *agent.Options) error {
	if f.Text == "" {
		return nil
	}
	if pids = targets.JVMs(ctx, pids); len(pids) == 0 {
		return errors.New("--slow needs a JVM, and none of the selected processes is one; pgrep -a java lists JVMs")
	}
	to.Slow = &slow.Options{PIDs: pids, Method: f.method, Share: budget}
	return nil
}

// Settle waits until a method that is called too often has shown.
func (f *Slow) Settle(ctx context.Context, a *agent.Agent) error {
	if f.Text == "" {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return f.Err(a)
}

// Err is why calls are not followed any more.
func (f *Slow) Err(a *agent.Agent) error {
	if err := a.SlowErr(); err != nil {
		return fmt.Errorf("--slow: %w", err)
	}
	return nil
}
