package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A depthManner says how much to measure of what samples cost.
type depthManner struct {
	depths []int // calls below which the guest of known depth works
	rates  []int // of its samples
	rounds int
	rest   time.Duration // of the guest, before it works
	learn  time.Duration // not measured: what the agent needs to know a guest
	settle time.Duration // not measured: after the depth has changed
	span   time.Duration // measured
}

var (
	longDepth = depthManner{
		depths: []int{10, 50, 100, 400, 950},
		rates:  []int{999, 9999}, // one that people use, and one that finds the program's memory still cached
		rounds: 9,                // fewer have one that is far off in their confidence interval
		rest:   time.Second, learn: 4 * time.Second, settle: 500 * time.Millisecond, span: time.Second,
	}
	shortDepth = depthManner{
		depths: []int{10, 950}, rates: []int{999}, rounds: 1,
		rest: 200 * time.Millisecond, learn: 300 * time.Millisecond, settle: 200 * time.Millisecond, span: 300 * time.Millisecond,
	}
)

// contextRate is the rate beside real programs, in samples a second of each CPU.
const contextRate = 999

// depths measures what a sample costs against the depth of the stack, in all modes.
func (b bench) depths(ctx context.Context) (*sampleCosts, error) {
	guest, err := startDeep(ctx, b.jdk)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	var costs sampleCosts
	for _, rate := range b.how.depth.rates {
		if err := b.inTurn(func(round int, m mode) error {
			return b.visit(ctx, guest, &costs, round, m, rate)
		}); err != nil {
			return nil, fmt.Errorf("%d Hz: %w", rate, err)
		}
	}
	return &costs, b.print(depthTable(&costs), flatTable(&costs))
}

// inTurn has every mode watch in every round, in another order each time: whatever else the machine does hits all alike.
func (b bench) inTurn(watch func(round int, m mode) error) error {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("have the kernel time BPF programs: %w: needs Linux 5.8 and CAP_SYS_ADMIN", err)
	}
	defer statistics.Close()
	for round := range b.how.depth.rounds {
		for i := range modes {
			m := modes[(i+round)%len(modes)]
			if err := watch(round, m); err != nil {
				return fmt.Errorf("%s: %w", m, err)
			}
		}
	}
	return nil
}

// visit has one mode watch the guest at all depths.
func (b bench) visit(ctx context.Context, guest deepGuest, costs *sampleCosts, round int, m mode, rate int) (err error) {
	how := b.how.depth
	p, err := b.startProbe(ctx, m, guest.PID(), rate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guest.rest(), p.close()) }()
	rest, err := p.during(sleep(how.rest))
	if err != nil {
		return err
	}
	at := slices.Clone(how.depths)
	if round%2 == 1 {
		slices.Reverse(at)
	}
	if err := guest.goTo(at[0]); err != nil {
		return err
	}
	time.Sleep(how.learning(m, rate))
	for _, depth := range at {
		if err := guest.goTo(depth); err != nil {
			return err
		}
		time.Sleep(how.settle)
		work, err := p.during(sleep(how.span))
		if err != nil {
			return err
		}
		cost, err := costOfSamples(m, work, rest)
		if err != nil {
			return err
		}
		if m == modeWalk {
			if err := checkDepth(depth, cost.frames); err != nil {
				return err
			}
		}
		costs.add(place{"", depth, rate}, m, cost)
		fmt.Fprintf(b.out, "%d Hz, %s, below %d calls: %v\n", rate, m, depth, cost)
	}
	return nil
}

// learning is how long the guest of known depth is watched before anything is measured. Chain walks less and less of the
// samples, until after six thousand (agent/chaining.go) it is as few as it will be.
func (d depthManner) learning(m mode, hz int) time.Duration {
	const samples = 8000
	if m != modeChain {
		return d.settle
	}
	return min(d.learn, samples*time.Second/time.Duration(hz*runtime.NumCPU()))
}

func sleep(d time.Duration) func() error {
	return func() error { time.Sleep(d); return nil }
}

// contexts measures what a sample of real programs costs, in all modes.
func (b bench) contexts(ctx context.Context, names []string) (*sampleCosts, error) {
	var costs sampleCosts
	for _, name := range names {
		if err := b.contextsOf(ctx, name, &costs); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return &costs, b.print(contextTable(&costs))
}

func (b bench) contextsOf(ctx context.Context, name string, costs *sampleCosts) error {
	how := b.how.depth
	guest, err := suite.Start(ctx, b.jdk, name)
	if err != nil {
		return err
	}
	defer guest.Close()
	if err := b.warmUp(guest); err != nil {
		return err
	}
	return b.inTurn(func(_ int, m mode) (err error) {
		p, err := b.startProbe(ctx, m, guest.PID(), contextRate)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		rest, err := p.during(sleep(how.rest))
		if err != nil {
			return err
		}
		if _, err := guest.RunFor(how.learn); err != nil {
			return err
		}
		work, err := p.during(func() error { _, err := guest.RunFor(2 * how.span); return err })
		if err != nil {
			return err
		}
		cost, err := costOfSamples(m, work, rest)
		if err != nil {
			return err
		}
		costs.add(place{guest: name, rate: contextRate}, m, cost)
		fmt.Fprintf(b.out, "%d Hz, %s, %s: %v\n", contextRate, m, name, cost)
		return nil
	})
}
