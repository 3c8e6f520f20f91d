// Command accuracy profiles programs whose profile is known, and fails if the agent's is another.
//
// Of time, three things are measured. Shares: guests that measure themselves (package guests) say what share of the
// samples each of their methods and threads must have. Completeness: the share of the samples of real programs (package
// suite) whose stack goes down to the thread's entry frame. Virtual threads: the same of a guest that yields, on several JDKs,
// which scripts/jdks fetches.
//
// Next to others: what JFR and async-profiler make of the same guests. async-profiler is not installed with anything else that
// tests need; without it, its rows are left out. ASYNC_PROFILER names its directory.
//
// Of calls, four, on programs whose call graph is known exactly. Rates: how much of the graph is found at which cost,
// for a grid of fixed rates. Budget: the same at the rate that the agent chooses. Adversary: a program that misleads
// whoever takes the call after a timer tick. Stock JVMs: what is estimated of real programs.
//
// Of contexts that are found without walking every stack, how many are right, by the check of the agent itself: chained
// ones since a program's beginning, with one walk in N, and partial walks. And how well a window predicts the next.
//
// Of events, two. Allocations of real programs, beside exact counts of the same time. And programs that know their events
// (package events): what they allocate where, how long their threads wait and for what, which monitors they take, how long
// the JVM stops them by its own log, which objects new memory is for, and what a probe's operands are.
//
//	go run ./tests/accuracy                 # everything; two hours, of which stock JVMs take 45 minutes, contexts 20
//	go run ./tests/accuracy -short          # what CI runs; less than three minutes
//	go run ./tests/accuracy -run 'Churn, C1, JDK 25'
//	go run ./tests/accuracy -run 'calls, .*, 7x32'
//	go run ./tests/accuracy -run '^(alloc|events), '
//	go run ./tests/accuracy -run '^beside, ' # 15 minutes
//	go run ./tests/accuracy -update         # also rewrites the tables in docs/accuracy.md
//	go run ./tests/accuracy -update -run '^calls, .*, budget'
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// docs is the page whose tables -update rewrites, from the root of the repository.
const docs = "docs/accuracy.md"

// An options is what the command line says.
type options struct {
	harness.Options
	run *regexp.Regexp
}

// choice is which trials are wanted.
func (o options) choice() harness.Choice { return harness.Choice{Run: o.run, Short: o.Short} }

// errInaccurate says that a profile was not what it must be. The tables say which.
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
		accurate, err := harness.Run(ctx, out, m, sections(jdks), o.choice(), page)
		if err == nil && !accurate {
			err = errInaccurate
		}
		return err
	})
}

// A manner says how long to look.
type manner struct {
	warmup    time.Duration // until most methods are compiled
	recording time.Duration
	frequency int

	// Of calls, all in CPU time of the guest.
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

// unsafe is what comes of trials that set hardware breakpoints on a machine where a program may die of them: short forms
// go on without.
func (m meter) unsafe(what string, err error) error {
	if m.short && errors.Is(err, attach.ErrBreakpointsLost) {
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
