package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/sampling"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/targets"
)

// countFlags have the calls of one method counted while other things are recorded: the unit of work
// of compare.
type countFlags struct {
	text    string // the method; empty: none
	method  hotspot.Method
	counter *hotspot.Counter
	waiting map[int]hotspot.Count    // of processes that the last windows did not have
	seen    map[int]*profile.Process // in windows, without their data
}

func (c *countFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&c.text, "count", "", "count calls of `METHOD`, for --per=calls:METHOD")
}

// isCounted reports whether calls of --count go into the file of a part: one of time.
func isCounted(p sampling.Part) bool {
	kind, ofEvents := p.Content.Events()
	return p.Content&sink.Time != 0 || ofEvents && (kind == profile.OffCPU || kind == profile.Wall)
}

// check fails where calls cannot be counted.
func (c *countFlags) check(o *recordOptions) (err error) {
	switch {
	case c.text == "":
		return nil
	case len(o.targets.Words) == 0:
		return cli.Misuse("--count needs the JVMs whose calls are to be counted: -p")
	case o.Calls || o.Events.MonitorEnters || o.Exact != "":
		return cli.Misuse("--count sets breakpoints of its own: remove -e calls, --exact and --monitor-enters")
	case !slices.ContainsFunc(o.parts(), isCounted):
		return cli.Misuse("--count needs -e cpu, -e offcpu or -e wall")
	}
	if c.method, err = hotspot.ParseMethod(c.text); err != nil {
		return cli.Misuse(err.Error())
	}
	return nil
}

// open begins to count.
func (c *countFlags) open(ctx context.Context, o *recordOptions, log *slog.Logger) (err error) {
	if c.text == "" {
		return nil
	}
	pids := targets.JVMs(ctx, o.pids)
	if err := targets.CheckMethod(ctx, pids, c.method, false, log); err != nil {
		return fmt.Errorf("count calls: %w", err)
	}
	if len(pids) == 0 {
		return errors.New("--count needs a JVM, and none of the selected processes is one; pgrep -a java lists JVMs")
	}
	c.counter, err = hotspot.OpenCounter(ctx, hotspot.Options{PIDs: pids, Method: c.method, Breakpoints: o.Breakpoints,
		Share: o.Events.Budget, Log: log})
	if err != nil {
		return fmt.Errorf("count calls of %s: %w", c.method, err)
	}
	select { // what is called too often shows at once
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return c.err()
}

// err is why what was counted is of no use.
func (c *countFlags) err() error {
	if c.counter == nil {
		return nil
	}
	return c.counter.Err()
}

// close ends the counting.
func (c *countFlags) close() {
	if c.counter != nil {
		c.counter.Close()
	}
}

// take returns what was counted until now, for the window that ends now; nil if nothing is counted.
func (c *countFlags) take() map[int]hotspot.Count {
	if c.counter == nil {
		return nil
	}
	return c.join(c.counter.Take())
}

// finish is the last take. It fails where the calls are not known; what else was recorded is good
// nevertheless.
func (c *countFlags) finish() (map[int]hotspot.Count, error) {
	if c.counter == nil {
		return nil, nil
	}
	counts, err := c.counter.Finish()
	return c.join(counts), err
}

// join adds the counts of earlier windows that wait for their process.
func (c *countFlags) join(counts map[int]hotspot.Count) map[int]hotspot.Count {
	for pid, before := range c.waiting {
		now := counts[pid]
		now.Calls, now.Error = now.Calls+before.Calls, math.Hypot(now.Error, before.Error)
		counts[pid] = now
	}
	c.waiting = nil
	return counts
}

// fill adds the calls to a window. Those of a process without samples wait for the next one. The
// last window has them all the same, if an earlier one had the process.
func (c *countFlags) fill(p *profile.Profile, counts map[int]hotspot.Count, last bool) {
	if c.counter == nil {
		return
	}
	p.Comments = append(p.Comments, c.counter.Notes()...)
	for _, process := range p.Processes {
		if _, counted := counts[process.PID]; counted {
			if c.seen == nil {
				c.seen = map[int]*profile.Process{}
			}
			c.seen[process.PID] = &profile.Process{
				PID: process.PID, Comm: process.Comm, Runtime: process.Runtime, VM: process.VM,
				Service: process.Service, Executable: process.Executable,
			}
		}
	}
	for pid, count := range counts {
		i := slices.IndexFunc(p.Processes, func(of *profile.Process) bool { return of.PID == pid })
		if known := c.seen[pid]; i < 0 && last && known != nil {
			i, p.Processes = len(p.Processes), append(p.Processes, known)
		}
		if i < 0 {
			if c.waiting == nil {
				c.waiting = map[int]hotspot.Count{}
			}
			c.waiting[pid] = count
			continue
		}
		if count.Calls > 0 {
			p.Processes[i].Calls = append(p.Processes[i].Calls, count.Profile(c.method))
		}
	}
}
