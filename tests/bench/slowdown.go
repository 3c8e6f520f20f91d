package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A slowdownManner says how much to measure of what samples cost programs.
type slowdownManner struct {
	rounds  int
	segment time.Duration
	// intervals are those of samples of a CPU: those of Whaley, and the two of Inoue and Nakatani
	// (0.5 and 2 ms).
	intervals []time.Duration
	loops     []time.Duration // the same for small loops
	warmUp    int             // segments of a small loop
}

var (
	longSlowdown = slowdownManner{
		rounds: 6, segment: time.Second, warmUp: 3,
		intervals: []time.Duration{500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
			10 * time.Millisecond},
		loops: []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond},
	}
	shortSlowdown = slowdownManner{
		rounds: 1, segment: 200 * time.Millisecond, warmUp: 1, loops: []time.Duration{time.Millisecond},
	}
)

// defaultSlowdownGuests are programs of the suite: more take too long.
var defaultSlowdownGuests = []string{"Xalan", "Jython"}

// A sampling is how a program is sampled.
type sampling struct {
	mode     mode
	interval time.Duration
}

func (s sampling) hz() int { return int(time.Second / s.interval) }

// A slowdown is the CPU time of a program under each sampling over that without.
type slowdown struct {
	guest   string
	by      map[sampling]harness.Ratio
	control harness.Ratio
}

// slowdowns measures programs by the sampling interval, with partial walks and with whole ones: the
// tables of Whaley (Java Grande 2000) and figure 9 of Inoue and Nakatani (OOPSLA 2009).
func (b bench) slowdowns(ctx context.Context) ([]harness.Table, error) {
	if len(b.how.slowdown.intervals) == 0 {
		return nil, nil // the short form: small loops take the same way
	}
	modes := []mode{modePartial, modeWalk}
	var slow []slowdown
	for _, name := range b.slowdownGuests {
		guest, err := suite.Start(ctx, b.jdk, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s, err := b.slowdownOf(ctx, name, suiteWorker{guest}, func() error { return b.warmUp(guest) }, modes,
			b.how.slowdown.intervals)
		if err := errors.Join(err, guest.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		slow = append(slow, s)
	}
	return []harness.Table{{Marker: "slowdown", Table: slowdownTable(slow, modes, b.how.slowdown.intervals)}}, nil
}

// loops measures small loops, which run from the caches that the agent needs as well.
func (b bench) loops(ctx context.Context) ([]harness.Table, error) {
	guest, err := startLoops(ctx, b.jdk)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	modes, intervals := []mode{modePartial}, b.how.slowdown.loops
	var slow []slowdown
	loops := smallLoops
	if b.how.cold {
		loops = loops[:1]
	}
	for _, loop := range loops {
		w := loopWorker{guest, loop, map[string]string{}}
		s, err := b.slowdownOf(ctx, loop, w, w.warmUp(b.how.slowdown), modes, intervals)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", loop, err)
		}
		slow = append(slow, s)
	}
	return []harness.Table{{Marker: "loops", Table: slowdownTable(slow, modes, intervals)}}, nil
}

// slowdownOf measures one program, each turn between two without the agent.
func (b bench) slowdownOf(
	ctx context.Context, name string, w worker, warmUp func() error, modes []mode, intervals []time.Duration,
) (s slowdown, err error) {
	how := b.how.slowdown
	if err := warmUp(); err != nil {
		return s, err
	}
	amount, err := amountFor(w, how.segment)
	if err != nil {
		return s, err
	}
	var kinds []sampling
	for _, interval := range intervals {
		for _, m := range modes {
			kinds = append(kinds, sampling{m, interval})
		}
	}
	off := func() (time.Duration, error) {
		used, err := usageOf(w, amount)
		return used.cpu, err
	}
	on := func(k sampling) (cpu time.Duration, err error) {
		o := profiler.Options{PID: w.PID(), Frequency: k.hz(), Extra: k.mode.flags()}
		_, _, err = b.watch(ctx, o, (*profiler.AgentRun).WaitSampling, nil, func() error {
			cpu, err = off()
			return err
		})
		return cpu, err
	}
	turns, err := harness.Alternate(harness.Rotated(how.rounds, kinds), off, on, nil)
	if err != nil {
		return s, err
	}
	s = slowdown{guest: name, by: map[sampling]harness.Ratio{}}
	var controls []float64
	for _, k := range kinds {
		over, control := turns.Ratios(k, func(d time.Duration) float64 { return d.Seconds() })
		s.by[k] = harness.RatioOf(over)
		controls = append(controls, control...)
		fmt.Fprintf(b.out, "%s, every %v, %s: %v\n", name, k.interval, k.mode, s.by[k])
	}
	s.control = harness.RatioOf(controls)
	fmt.Fprintf(b.out, "%s, nobody: %v\n", name, s.control)
	return s, nil
}

// slowdownTable has a row for each program and mode.
func slowdownTable(slow []slowdown, modes []mode, intervals []time.Duration) report.Table {
	table := report.Table{Header: []string{"program", "`--context`"}}
	for _, interval := range intervals {
		table.Header = append(table.Header, "every "+strings.Replace(interval.String(), "µs", " µs", 1))
	}
	table.Header = append(table.Header, "nobody")
	for _, s := range slow {
		for _, m := range modes {
			cells := []string{s.guest, string(m)}
			for _, interval := range intervals {
				cells = append(cells, s.by[sampling{m, interval}].String())
			}
			table.Add(append(cells, s.control.String())...)
		}
	}
	return table
}

// smallLoops work in registers, in the first-level cache and in the second-level cache.
var smallLoops = []string{"logic", "sieve", "list"}

// A loopWorker runs one of the small loops of tests/guests/java/guest/Loops.java.
type loopWorker struct {
	*jvm.Guest
	loop      string
	checksums map[string]string // by loop, of the first time
}

func startLoops(ctx context.Context, jdk jvm.JDK) (*jvm.Guest, error) {
	classes, err := guests.Compile(ctx, jdk)
	if err != nil {
		return nil, err
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK: jdk, Flags: []string{"-XX:+UseSerialGC"}, Classpath: []string{classes}, Main: "guest.Loops",
	})
	if err != nil {
		return nil, fmt.Errorf("start small loops: %w", err)
	}
	return guest, nil
}

// loopUnit is how many times a unit of work runs a loop: some ms.
const loopUnit = 20

func (w loopWorker) work(units int) error {
	lines, err := w.Order(fmt.Sprintf("run %s %d", w.loop, units*loopUnit))
	if err != nil {
		return err
	}
	if len(lines) != 1 {
		return fmt.Errorf("loop %s: got %q", w.loop, lines)
	}
	if first, ok := w.checksums[w.loop]; ok && first != lines[0] {
		return fmt.Errorf("%s after %s: %w", lines[0], first, suite.ErrDisturbed)
	}
	w.checksums[w.loop] = lines[0]
	return nil
}

// warmUp runs the loop until it is compiled.
func (w loopWorker) warmUp(how slowdownManner) func() error {
	return func() error {
		for range how.warmUp {
			for end := time.Now().Add(how.segment); time.Now().Before(end); {
				if err := w.work(1); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
