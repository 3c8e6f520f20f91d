package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/growth"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// sampleAim is how long a sample of a known stack may take, in ns: a million a second on one core.
const sampleAim = 1000

// A growthManner says what grows, and how far.
type growthManner struct {
	base    growth.Load
	samples []int
	stacks  []int
	methods []int
	cpus    []int
	rounds  int

	window    time.Duration
	processes []int
	jvms      []int
	copies    []int // copies of the four methods of a crowd
}

var (
	longGrowth = growthManner{
		base:    growth.Load{Samples: 1 << 20, Stacks: 10 << 10, Methods: 1_000, CPUs: 16},
		samples: []int{1 << 18, 1 << 20, 1 << 22}, stacks: []int{1 << 10, 10 << 10, 100 << 10, 1000 << 10},
		methods: []int{1_000, 10_000, 100_000}, cpus: []int{2, 16, 128}, rounds: 3,
		window: 5 * time.Second, processes: []int{10, 100, 1_000, 2_000}, jvms: []int{1, 10, 50, 200},
		copies: []int{250, 1_250, 6_250},
	}
	shortGrowth = growthManner{
		base: growth.Load{Samples: 20 << 10, Stacks: 1 << 10, Methods: 200, CPUs: 2}, cpus: []int{2}, rounds: 1,
		window: time.Second, processes: []int{10}, jvms: []int{1},
	}
)

// growth replays generated records, and returns how the cost of a sample grows with them.
func (b bench) growth(ctx context.Context) ([]harness.Table, error) {
	replayed, err := b.replays(ctx)
	if err != nil {
		return nil, err
	}
	return []harness.Table{{Marker: "growth", Table: replayTable(replayed)}}, nil
}

// A replayed is what one load cost, each time.
type replayed struct {
	what  string
	load  growth.Load
	costs []growth.Cost
}

// loads are those in which one figure grows at a time.
func (how growthManner) loads() (all []*replayed) {
	add := func(what string, values []int, set func(l *growth.Load, v int)) {
		for _, v := range values {
			l := how.base
			set(&l, v)
			all = append(all, &replayed{what: fmt.Sprintf("%d %s", v, what), load: l})
		}
	}
	add("samples", how.samples, func(l *growth.Load, v int) { l.Samples = v })
	add("stacks", how.stacks, func(l *growth.Load, v int) { l.Stacks = v })
	add("methods", how.methods, func(l *growth.Load, v int) { l.Methods = v })
	add("CPUs", how.cpus, func(l *growth.Load, v int) { l.CPUs = v })
	return all
}

// replays replays all loads in turn.
func (b bench) replays(ctx context.Context) ([]*replayed, error) {
	all := b.how.growth.loads()
	for range b.how.growth.rounds {
		for _, r := range all {
			cost, err := growth.Replay(ctx, r.load)
			if err != nil {
				return nil, fmt.Errorf("replay %s: %w", r.what, err)
			}
			r.costs = append(r.costs, cost)
		}
	}
	return all, nil
}

// median is that of a figure.
func (r *replayed) median(figure func(growth.Cost) float64) float64 {
	var values []float64
	for _, c := range r.costs {
		values = append(values, figure(c))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func replayTable(all []*replayed) report.Table {
	table := report.Table{Header: []string{
		"generated records", "sample of a known stack, ns", "allocations", "aim", "", "new stack, ns", "new method, ns",
		"contexts", "closing, ns a context", "heap, MB",
	}}
	for _, r := range all {
		known := r.median(func(c growth.Cost) float64 { return c.Known.Each() })
		table.Add(r.what, fmt.Sprintf("%.0f", known),
			fmt.Sprintf("%.2f", r.median(func(c growth.Cost) float64 { return c.Known.AllocsEach() })),
			fmt.Sprintf("≤ %d", sampleAim), report.Verdict(known <= sampleAim),
			fmt.Sprintf("%.0f", r.median(func(c growth.Cost) float64 { return c.New.Each() })),
			fmt.Sprintf("%.0f", r.median(func(c growth.Cost) float64 { return c.Name.Each() })),
			fmt.Sprint(r.costs[0].Close.Of),
			fmt.Sprintf("%.0f", r.median(func(c growth.Cost) float64 { return c.Close.Each() })),
			fmt.Sprintf("%.1f", r.median(func(c growth.Cost) float64 { return float64(c.Heap) / 1e6 })))
	}
	return table
}

// A watched is what it took to record some processes.
type watched struct {
	what string
	growth.Watched
}

// watchGrowth records processes that run, and ends them.
func (b bench) watchGrowth(ctx context.Context, what string, pids []int, vms int, end func() error) (watched, error) {
	w, err := growth.Watch(ctx, pids, vms, b.how.growth.window)
	if err = errors.Join(err, end()); err != nil {
		return watched{}, fmt.Errorf("record %s: %w", what, err)
	}
	fmt.Fprintf(b.out, "growth: recorded %s\n", what)
	return watched{what, w}, nil
}

// processes records ever more processes that run in turn.
func (b bench) processes(ctx context.Context) ([]harness.Table, error) {
	var all []watched
	for _, n := range b.how.growth.processes {
		turns, err := growth.StartTurns(ctx, n)
		if err != nil {
			return nil, err
		}
		w, err := b.watchGrowth(ctx, fmt.Sprintf("%d processes", n), turns.PIDs, 0, turns.Close)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return []harness.Table{{Marker: "processes", Table: watchTable(all)}}, nil
}

// jvms records ever more JVMs, and a JVM of ever more methods.
func (b bench) jvms(ctx context.Context) ([]harness.Table, error) {
	var all []watched
	for _, n := range b.how.growth.jvms {
		pids, end, err := b.startTurns(ctx, n)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		w, err := b.watchGrowth(ctx, fmt.Sprintf("%d JVMs", n), pids, n, end)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	for _, n := range b.how.growth.copies {
		guest, err := guests.Start(ctx, b.jdk, guests.CrowdOf(n), guests.Flavour{})
		if err != nil {
			return nil, err
		}
		methods, err := b.jdk.CompiledMethods(ctx, guest.PID())
		if err != nil {
			return nil, errors.Join(err, guest.Close())
		}
		w, err := b.watchGrowth(ctx, fmt.Sprintf("a JVM with %d compiled methods", methods), []int{guest.PID()}, 1,
			guest.Close)
		if err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return []harness.Table{{Marker: "jvms", Table: watchTable(all)}}, nil
}

// startTurns starts JVMs that work in turn. The caller calls end, also if it fails.
func (b bench) startTurns(ctx context.Context, count int) (pids []int, end func() error, err error) {
	var all []*guests.Guest
	end = func() (err error) {
		for _, g := range all {
			err = errors.Join(err, g.Close())
		}
		return err
	}
	for range count {
		guest, err := guests.Start(ctx, b.jdk, guests.Turns(count), guests.Flavour{})
		if err != nil {
			return nil, end, err
		}
		all, pids = append(all, guest), append(pids, guest.PID())
	}
	return pids, end, nil
}

func watchTable(all []watched) report.Table {
	table := report.Table{Header: []string{
		"recorded", "start, ms", "samples", "of processes", "first window, µs a sample", "then, µs a sample",
		"closing, ms", "heap, MB",
	}}
	for _, w := range all {
		table.Add(w.what, fmt.Sprintf("%.0f", 1e3*w.Start.Seconds()), fmt.Sprint(w.Then.Of), fmt.Sprint(w.Sampled),
			fmt.Sprintf("%.1f", w.First.Each()/1e3), fmt.Sprintf("%.1f", w.Then.Each()/1e3),
			fmt.Sprintf("%.1f", 1e3*w.Close.Seconds()),
			fmt.Sprintf("%.1f", float64(w.Heap)/1e6))
	}
	return table
}
