package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
)

// The grid of Arnold & Grove's table 2, as far as it is of use. 1x1 is their timer-based profiler: at a tick it takes
// the next call.
var (
	strides = []int{1, 3, 7, 15, 31}
	samples = []int{1, 4, 16, 32, 64, 128}
)

// gridHz is their rate of ticks, per second of CPU time.
const gridHz = 100

// Programs have rows of their own for these bursts.
var shownBursts = []profile.Burst{{Stride: 1, Samples: 1}, {Stride: 7, Samples: 32}, {Stride: 31, Samples: 128}}

// parser is the name of the PHP guest.
const parser = "PHP-Parser"

// The rates section records guests at each rate of the grid: Arnold & Grove's table 2.
type rates struct {
	table    string // in the documentation
	engine   string
	programs []string
	bursts   []profile.Burst

	guests []*paced // afterwards
}

// callTrial is the name of what is measured of calls: what -run is matched with.
func callTrial(program, how string) string { return fmt.Sprintf("calls, %s, %s", program, how) }

// planVMRates has every burst of the grid on all programs of the reference guest.
func planVMRates(o options) *rates {
	s := &rates{table: "rates-vm", engine: "page", programs: guests.VMPrograms(), bursts: grid()}
	return s.choose(o, "virtual")
}

// planPHPRates has them on PHP-Parser.
func planPHPRates(o options) *rates {
	s := &rates{table: "rates-php", engine: "usdt", programs: []string{parser}, bursts: grid()}
	return s.choose(o, parser)
}

func grid() (bursts []profile.Burst) {
	for _, samples := range samples {
		for _, stride := range strides {
			bursts = append(bursts, profile.Burst{Stride: stride, Samples: samples})
		}
	}
	return bursts
}

// choose leaves what the options ask for. The short form has one program.
func (s *rates) choose(o options, short string) *rates {
	matches := func(program string) func(profile.Burst) bool {
		return func(b profile.Burst) bool { return o.run.MatchString(callTrial(program, burstName(b))) }
	}
	if o.short {
		s.programs, s.bursts = []string{short}, shownBursts[:2]
	}
	s.programs = slices.DeleteFunc(slices.Clone(s.programs), func(p string) bool { return !slices.ContainsFunc(s.bursts, matches(p)) })
	s.bursts = slices.DeleteFunc(slices.Clone(s.bursts), func(b profile.Burst) bool {
		return !slices.ContainsFunc(s.programs, func(p string) bool { return matches(p)(b) })
	})
	return s
}

func burstName(b profile.Burst) string { return fmt.Sprintf("%dx%d", b.Stride, b.Samples) }

func (s *rates) run(ctx context.Context, m meter) (err error) {
	if len(s.programs) == 0 {
		return nil
	}
	t, err := startTurns(ctx, m, s.engine, s.programs)
	if err != nil {
		return err
	}
	defer func() { err = closing(t, err) }()
	if err := t.rest(m.how.rest); err != nil {
		return err
	}
	for k, burst := range s.bursts {
		if err := t.record(ctx, profile.Rate{Hz: gridHz, Burst: burst}, m.how.cell); err != nil {
			return fmt.Errorf("calls, %s: %w", burstName(burst), err)
		}
		if err := t.rest(m.how.rest); err != nil {
			return err
		}
		for _, g := range t.guests {
			fmt.Fprintf(m.out, "%s: overhead %+.1f%%, overlap %.1f of ideally %.1f after %.0f calls\n",
				callTrial(g.name, burstName(burst)), 100*g.overhead(k), g.overlap(k), g.ideal(k), g.recorded[k].calls)
		}
	}
	s.guests = t.guests
	for _, t := range s.tables() {
		fmt.Fprintln(m.out)
		if err := t.Print(m.out); err != nil {
			return err
		}
	}
	return nil
}

// ok is true: the grid has no aim, it shows what to choose from.
func (s *rates) ok() bool { return true }
