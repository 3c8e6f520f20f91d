package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A takes is how guests are recorded.
type takes struct {
	windows   int
	window    time.Duration
	frequency int
}

// recorded is the agent's recording of a process, window by window, with the CPU time of each
// method.
func (l lab) recorded(ctx context.Context, pid int, how takes, work func() error) ([]audit.Window[string], error) {
	run, err := l.agent.Start(ctx, profiler.Options{
		PID: pid, Duration: time.Duration(how.windows) * how.window, Frequency: how.frequency,
		Extra: []string{"--window=" + how.window.String()},
	})
	if err != nil {
		return nil, err
	}
	worked := make(chan error, 1)
	go func() { worked <- work() }()
	recording, err := run.Finish()
	if err := errors.Join(err, <-worked); err != nil {
		return nil, err
	}
	return windowsOf(recording.Profile, how.windows)
}

// windowsOf reads a recording of that many windows, each of which is one unit of work.
func windowsOf(p *profile.Profile, n int) ([]audit.Window[string], error) {
	const samples, cpu = 0, 1 // columns
	windows := make([]audit.Window[string], n)
	for i := range windows {
		windows[i] = audit.Window[string]{Units: 1, Keys: make(map[string]audit.Cost)}
	}
	for _, s := range p.Sample {
		number := s.NumLabel["window"]
		if len(number) != 1 || number[0] < 1 || number[0] > int64(n) {
			return nil, fmt.Errorf("a sample of window %v, where %d were recorded", number, n)
		}
		w := &windows[number[0]-1]
		cost := audit.Cost{Amount: float64(s.Value[cpu]), Samples: float64(s.Value[samples])}
		w.Total = w.Total.Plus(cost)
		if len(s.Location) > 0 {
			method := s.Location[0].Line[0].Function.Name
			w.Keys[method] = w.Keys[method].Plus(cost)
		}
	}
	return windows, nil
}

// keysOf are the methods with at least that share of the costs.
func keysOf(windows []audit.Window[string], least float64) (keys []string, shares map[string]float64) {
	shares = make(map[string]float64)
	var all float64
	for _, w := range windows {
		all += w.Total.Amount
		for method, cost := range w.Keys {
			shares[method] += cost.Amount
		}
	}
	for method := range shares {
		if shares[method] /= all; shares[method] >= least {
			keys = append(keys, method)
		}
	}
	return keys, shares
}

// oneRun is a side of one process.
func oneRun(windows []audit.Window[string]) audit.Side[string] {
	return audit.Side[string]{Runs: []audit.Run[string]{{Windows: windows}}}
}

// A duel is two guests that serve the same number of requests, recorded at the same time.
type duel struct {
	sides [2][]audit.Window[string]
	truth [2]guests.Truth
}

// change is the difference of the second one's CPU time in percent, by the guests' own clocks.
func (d duel) change() float64 { return 100 * (float64(d.truth[1].CPU)/float64(d.truth[0].CPU) - 1) }

// compare compares them as a whole, and by the methods with a claim.
func (d duel) compare() *audit.Result {
	var keys []string
	for _, claim := range d.truth[0].Claims {
		keys = append(keys, claim.Name)
	}
	return audit.Compare(oneRun(d.sides[0]), oneRun(d.sides[1]), keys, &audit.Options{Alpha: alpha})
}

// fight runs two guests side by side until their methods are compiled, and records both.
func (l lab) fight(ctx context.Context, how takes, programs ...guests.Program) (d duel, err error) {
	var running []*guests.Guest
	defer func() {
		for _, guest := range running {
			err = errors.Join(err, guest.Close())
		}
	}()
	for _, program := range programs {
		guest, err := guests.Start(ctx, l.jdk, program, guests.Flavour{})
		if err != nil {
			return d, err
		}
		running = append(running, guest)
	}
	for _, guest := range running {
		if _, err := guest.Await(ctx, time.Now()); err != nil {
			return d, err
		}
	}
	time.Sleep(l.warmup) // It is part of the measurement's manner: no moment is the last one of the compilers.
	failures := make(chan error, len(running))
	began := time.Now()
	for i, guest := range running {
		go func() {
			windows, err := l.recorded(ctx, guest.PID(), how, func() error { return nil })
			d.sides[i] = windows
			failures <- err
		}()
	}
	for range running {
		err = errors.Join(err, <-failures)
	}
	ended := time.Now()
	if err != nil {
		return d, err
	}
	for i, guest := range running {
		if d.truth[i], err = guest.Truth(began, ended); err != nil {
			return d, err
		}
	}
	return d, nil
}

// named formats a verdict in the words of compare.
func named(v audit.Verdict) string {
	return strings.NewReplacer("less", "faster", "more", "slower").Replace(v.String())
}
