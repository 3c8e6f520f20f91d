// Command accuracy profiles programs whose profile is known, and fails if the agent's differs.
//
// It measures three things about time. Shares: guests that measure themselves (package guests)
// state the share of the samples of each of their methods and threads. Completeness: the share of
// the samples of real programs (package suite) whose stack reaches the thread's entry frame.
// Virtual threads: the same for a guest that yields, on several JDKs, which scripts/jdks fetches.
//
// In comparison: the profiles of JFR and async-profiler for the same guests. Nothing else that
// tests need installs async-profiler; without it, its rows are left out. ASYNC_PROFILER names its
// directory.
//
// It measures four things about calls, on programs whose call graph is known exactly. Rates: how
// much of the graph is found at which cost, for a grid of fixed rates. Budget: the same at the rate
// that the agent chooses. Adversary: a program that misleads profilers which take the call after a
// timer tick. Stock JVMs: estimates for real programs.
//
// For contexts that are found without walking every stack, it measures how many are right, by the
// agent's own check: chained ones since a program's beginning, with one walk in N, and partial
// walks. It also measures how well a window predicts the next.
//
// It measures two things about events. Allocations of real programs, compared with exact counts of
// the same time. And programs that know their events (package events): what they allocate where,
// how long their threads wait and for what, next to JFR and perf sched, which monitors they
// acquire, how long safepoint pauses are by the JVM's own log, which objects new memory is for, and
// the operands of a probe.
//
//	go run ./tests/accuracy                 # everything; two hours, of which stock JVMs take 45 minutes, contexts 20
//	go run ./tests/accuracy -short          # what CI runs; less than three minutes
//	go run ./tests/accuracy -run 'Churn, C1, JDK 25'
//	go run ./tests/accuracy -run 'calls, .*, 7x32'
//	go run ./tests/accuracy -run '^(alloc|events), '
//	go run ./tests/accuracy -run '^beside, ' # 15 minutes
//	go run ./tests/accuracy -update         # also rewrites the tables in docs/measurements
//	go run ./tests/accuracy -update -run '^calls, .*, budget'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the directory of the pages whose tables -update rewrites, from the root of the repository.
const docs = "docs/measurements"

// An options is the command line.
type options struct {
	harness.Options
	run *regexp.Regexp
}

// choice is the selected trials.
func (o options) choice() harness.Choice { return harness.Choice{Run: o.run, Short: o.Short} }

// errInaccurate says that a profile was wrong. The tables show which.
var errInaccurate = errors.New("a profile is further from the truth than its tolerance")

func main() { harness.Main("accuracy", run) }

func parse(args []string) (options, error) {
	var o options
	flags := o.Flags("accuracy", "fewer flavours, shorter recordings", docs)
	pattern := flags.String("run", "", "only what matches, by guest, flavour and JDK as they are printed")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	var err error
	if o.run, err = regexp.Compile(*pattern); err != nil {
		return options{}, fmt.Errorf("-run: %w", err)
	}
	if o.Update && o.Short {
		return options{}, errors.New("-update needs long recordings: leave out -short")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	jdks, err := jvm.Find(jvm.Root)
	if err != nil {
		return err
	}
	if len(jdks) == 0 {
		return jvm.ErrNoJDK
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		m := meter{agent: agent, dir: dir, out: out, how: longRun, short: o.Short}
		m.vm = sync.OnceValues(func() (guests.VM, error) { return guests.BuildVM(ctx, dir) })
		if o.Short {
			m.how = shortRun
		}
		page := ""
		if o.Update {
			page = docs
		}
		failed, err := harness.Run(ctx, out, m, sections(jdks), o.choice(), page)
		if err == nil && len(failed) > 0 {
			err = fmt.Errorf("%w: %s", errInaccurate, strings.Join(failed, ", "))
		}
		return err
	})
}

// A manner is how long to record.
type manner struct {
	warmup    time.Duration // until most methods are compiled
	recording time.Duration
	frequency int

	// For calls, all in CPU time of the guest.
	rest   time.Duration // without the agent, before and after each recording
	cell   time.Duration // with each fixed rate
	budget time.Duration // with the rate that the agent chooses
	pairs  int           // how often it chooses
}

var (
	longRun = manner{
		warmup: time.Second, recording: 5 * time.Second, frequency: 1999,
		rest: time.Second, cell: 2500 * time.Millisecond, budget: 10 * time.Second, pairs: 2,
	}
	shortRun = manner{
		warmup: 300 * time.Millisecond, recording: time.Second, frequency: 3999,
		rest: 300 * time.Millisecond, cell: time.Second, budget: 3 * time.Second, pairs: 1,
	}
)

// unsafe is the result of trials that set hardware breakpoints on a machine where they may kill a
// program: short forms continue without them.
func (m meter) unsafe(what string, err error) error {
	if m.short && errors.Is(err, breakpoint.ErrLost) {
		fmt.Fprintf(m.out, "%s: not measured: %v\n\n", what, err)
		return nil
	}
	return err
}

// A meter measures the agent.
type meter struct {
	agent profiler.Agent
	vm    func() (guests.VM, error) // builds the reference guest when it is needed
	dir   string                    // for files of a run
	out   io.Writer
	how   manner
	short bool
}
