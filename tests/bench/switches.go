package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/switching"
)

// A switchManner says how much to measure of what following switches costs.
type switchManner struct {
	rounds  int
	segment time.Duration
	rates   []int // switches a second of pairs of threads; 0: as many as they can
	threads int   // threads of the JVM
}

var (
	longSwitches = switchManner{rounds: 7, segment: 2 * time.Second, rates: []int{10_000, 100_000, 500_000, 0},
		threads: 1000}
	shortSwitches = switchManner{rounds: 1, segment: 300 * time.Millisecond, rates: []int{100_000}, threads: 100}
)

// switchAim is how much CPU time of a guest -e offcpu may take, over what the guest takes without.
const switchAim = 1.01

// offCPU are the flags of a recording of waits.
var offCPU = []string{"-e", "offcpu"}

// switches measures what -e offcpu costs guests that switch often.
func (b bench) switches(ctx context.Context) ([]harness.Table, error) {
	table := report.Table{Header: []string{
		"guest", "waits/s", "CPU time", "nobody", fmt.Sprintf("aim: ≤ %g", switchAim), "BPF, ns a wait",
		"BPF, % of CPU time", "records/s", "lost",
	}}
	measure := func(name string, start func(context.Context) (worker, error)) error {
		w, err := start(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		cells, err := b.switchCost(ctx, w)
		if err := errors.Join(err, w.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintln(b.out, name, strings.Join(cells, " "))
		table.Add(append([]string{name}, cells...)...)
		return nil
	}
	for _, rate := range b.how.switches.rates {
		name := fmt.Sprintf("pairs of threads, %d/s", rate)
		if rate == 0 {
			name = "pairs of threads, no pause"
		}
		if err := measure(name, func(ctx context.Context) (worker,
			error) {
			return startPairs(ctx, rate)
		}); err != nil {
			return nil, err
		}
	}
	if err := measure("perf bench sched messaging", startMessaging); err != nil {
		return nil, err
	}
	if err := measure(fmt.Sprintf("JVM, %d threads", b.how.switches.threads), b.startNapping); err != nil {
		return nil, err
	}
	return []harness.Table{{Marker: "switches", Table: table}}, nil
}

// A switchWorker has a guest work in amounts that it takes as orders.
type switchWorker struct {
	*switching.Guest
	order func(amount int) string
}

func (w switchWorker) work(amount int) error { return w.Order(w.order(amount)) }

func startMessaging(ctx context.Context) (worker, error) {
	guest, err := switching.StartMessaging(ctx)
	if err != nil {
		return nil, err
	}
	const unit = 200 // messages: less is mostly perf's own start
	return switchWorker{guest, func(amount int) string { return fmt.Sprint(amount * unit) }}, nil
}

// startPairs starts pairs of threads that switch that often in a second, all together; 0: as often
// as they can.
func startPairs(ctx context.Context, rate int) (worker, error) {
	guest, err := switching.StartPairs(ctx)
	if err != nil {
		return nil, err
	}
	const unit, long = 2_000, 2_000 // hand-overs by each thread, and rounds of work before each
	w := func(work int) switchWorker {
		return switchWorker{guest, func(amount int) string { return fmt.Sprint(amount*unit, work) }}
	}
	if rate == 0 {
		return w(0), nil
	}
	perUnit := func(work int) (time.Duration, error) {
		const units = 10
		began := time.Now()
		err := w(work).work(units)
		return time.Since(began) / units, err
	}
	least, err := perUnit(0)
	if err != nil {
		return nil, errors.Join(err, guest.Close())
	}
	with, err := perUnit(long)
	if err != nil {
		return nil, errors.Join(err, guest.Close())
	}
	// In each hand-over a thread leaves its CPU, and the other one of its pair comes.
	want := time.Duration(float64(2*unit*guest.Pairs) / float64(rate) * float64(time.Second))
	return w(max(0, int(float64(want-least)/float64(max(with-least, 1))*long))), nil
}

// A napper is the JVM.
type napper struct {
	*events.Guest
	threads int
}

func (w napper) work(amount int) error {
	_, err := w.Run(w.threads, amount)
	return err
}

func (b bench) startNapping(ctx context.Context) (worker, error) {
	guest, err := events.Start(ctx, b.jdk, events.Napping)
	if err != nil {
		return nil, err
	}
	w := napper{guest, b.how.switches.threads}
	if b.how.cold {
		return w, nil
	}
	return w, w.work(50)
}

// A switchSegment is what a guest used for an amount of work, and what was recorded meanwhile, if
// anything was.
type switchSegment struct {
	usage
	seen, records, lost uint64
	// bpf is the time in the programs of the scheduler, by the kernel's statistics; 0 if these were
	// off.
	bpf time.Duration
}

// Kinds of segments that are recorded. The kernel's statistics cost about as much as the programs,
// so that what the guest pays is measured without.
const (
	switchPlain = "recorded"
	switchTimed = "timed"
)

// switchCost returns the cells of a row.
func (b bench) switchCost(ctx context.Context, w worker) ([]string, error) {
	amount, err := amountFor(w, b.how.switches.segment)
	if err != nil {
		return nil, err
	}
	off := func() (s switchSegment, err error) {
		s.usage, err = usageOf(w, amount)
		return s, err
	}
	on := func(kind string) (switchSegment, error) { return b.recordSwitches(ctx, w, amount, kind == switchTimed) }
	turns, err := harness.Alternate(harness.Rotated(b.how.switches.rounds, []string{switchPlain, switchTimed}), off, on,
		nil)
	if err != nil {
		return nil, err
	}
	var plain, timed switchSegment
	for _, turn := range turns.On {
		to := &plain
		if turn.Kind == switchTimed {
			to = &timed
		}
		to.usage.add(turn.Sample.usage)
		to.seen += turn.Sample.seen
		to.records += turn.Sample.records
		to.lost += turn.Sample.lost
		to.bpf += turn.Sample.bpf
	}
	over, control := turns.Ratios(switchPlain, switchCPU)
	_, more := turns.Ratios(switchTimed, switchCPU)
	cpu := harness.RatioOf(over)
	return []string{
		fmt.Sprintf("%.0f", harness.Per(float64(plain.seen), plain.wall.Seconds())),
		cpu.String(), harness.RatioOf(append(control, more...)).String(), cpu.AtMost(switchAim),
		fmt.Sprintf("%.0f", harness.Per(float64(timed.bpf), float64(timed.seen))),
		fmt.Sprintf("%.2f", 100*harness.Per(float64(timed.bpf), float64(timed.cpu))),
		fmt.Sprintf("%.0f", harness.Per(float64(plain.records), plain.wall.Seconds())),
		fmt.Sprint(plain.lost + timed.lost),
	}, nil
}

func switchCPU(s switchSegment) float64 { return float64(s.cpu) }

// recordSwitches runs a segment while waits are recorded. Waits that are not accounted for are an
// error.
func (b bench) recordSwitches(ctx context.Context, w worker, amount int, timed bool) (s switchSegment, err error) {
	recording, err := b.agent.While(ctx, profiler.Options{PID: w.PID(), Extra: offCPU},
		(*profiler.AgentRun).WaitAttached, func(run *profiler.AgentRun) error {
			work := func() (err error) {
				s.usage, err = usageOf(w, amount)
				return err
			}
			if !timed {
				return work()
			}
			s.bpf, err = timeSwitches(run.PID(), work)
			return err
		})
	if err != nil {
		return s, err
	}
	e := recording.Stats.Events
	if e == nil || e.Waits == 0 {
		return s, errNoWaits
	}
	s.seen, s.records, s.lost = e.Waits, e.Delivered, e.Attempted-e.Delivered
	if e.Waits != e.WaitsThinned+e.Attempted {
		return s, fmt.Errorf("%d waits seen, but %d thinned and %d attempted to record", e.Waits, e.WaitsThinned,
			e.Attempted)
	}
	return s, nil
}

// errNoWaits says that nothing was followed.
var errNoWaits = errors.New("no wait was seen")

// switchPrograms run at switches: bpf/wait/offcpu.bpf.c. The kernel cuts names.
var switchPrograms = []string{"thread_leaves", "thread_switche", "thread_goes_on", "thread_switched"}

// timeSwitches returns how long the programs of the scheduler that a process holds run while
// something is done.
func timeSwitches(pid int, do func() error) (took time.Duration, err error) {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return 0, fmt.Errorf("have the kernel time BPF programs: %w: needs Linux 5.8 and CAP_SYS_ADMIN", err)
	}
	defer statistics.Close()
	ids, err := heldPrograms(fmt.Sprintf("/proc/%d/fdinfo", pid))
	if err != nil {
		return 0, err
	}
	var meters []*meter
	defer func() {
		for _, m := range meters {
			m.close()
		}
	}()
	for _, id := range ids {
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			return 0, fmt.Errorf("open BPF program %d: %w", id, err)
		}
		m := &meter{program: program}
		meters = append(meters, m)
	}
	read := func() (sum time.Duration, err error) {
		for _, m := range meters {
			info, err := m.program.Info()
			if err != nil {
				return 0, fmt.Errorf("look at a BPF program: %w", err)
			}
			if !isSwitchProgram(info.Name) {
				continue
			}
			r, err := m.read()
			if err != nil {
				return 0, err
			}
			sum += r.time
		}
		return sum, nil
	}
	before, err := read()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := read()
	return after - before, err
}

func isSwitchProgram(name string) bool {
	for _, prefix := range switchPrograms {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
