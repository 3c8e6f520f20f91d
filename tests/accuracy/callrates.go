package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// The useful part of the grid of Arnold & Grove's table 2. 1x1 is their timer-based profiler: at a
// tick it takes the next call.
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

// A ratesTrial is a program and how its calls are sampled: a cell of the grid.
type ratesTrial struct {
	program string
	burst   profile.Burst
}

// String is the trial's name, which -run matches.
func (t ratesTrial) String() string { return callTrial(t.program, burstName(t.burst)) }

// rates are guests that were recorded at the rates of a grid.
type rates struct {
	marker string // in the documentation
	guests []course
}

// planRates records guests at each rate of the grid: Arnold & Grove's table 2. The short form has
// one program. The grid has no aim; it helps to choose a rate.
func planRates(marker, engine string, programs []string, short string) plan {
	return harness.Trials[meter, ratesTrial, *rates]{
		All: func(inShort bool) []ratesTrial {
			if inShort {
				return ratesTrials([]string{short}, shownBursts[:2])
			}
			return ratesTrials(programs, grid())
		},
		Run: func(m meter, ctx context.Context, trials []ratesTrial) ([]*rates, error) {
			s, err := recordRates(ctx, m, marker, engine, trials)
			return []*rates{s}, err
		},
		Tables: func(results []*rates) []harness.Table { return results[0].tables() },
	}.Plan
}

// callTrial is the name of a measurement of calls, which -run matches.
func callTrial(program, how string) string { return fmt.Sprintf("calls, %s, %s", program, how) }

func ratesTrials(programs []string, bursts []profile.Burst) (trials []ratesTrial) {
	for _, program := range programs {
		for _, burst := range bursts {
			trials = append(trials, ratesTrial{program, burst})
		}
	}
	return trials
}

func grid() (bursts []profile.Burst) {
	for _, samples := range samples {
		for _, stride := range strides {
			bursts = append(bursts, profile.Burst{Stride: stride, Samples: samples})
		}
	}
	return bursts
}

func burstName(b profile.Burst) string { return fmt.Sprintf("%dx%d", b.Stride, b.Samples) }

// programsAndBursts are the programs and bursts of trials: all programs are recorded at once, with
// each burst.
func programsAndBursts(trials []ratesTrial) (programs []string, bursts []profile.Rate) {
	for _, t := range trials {
		if !slices.Contains(programs, t.program) {
			programs = append(programs, t.program)
		}
		if rate := (profile.Rate{Hz: gridHz, Burst: t.burst}); !slices.Contains(bursts, rate) {
			bursts = append(bursts, rate)
		}
	}
	return programs, bursts
}

func recordRates(ctx context.Context, m meter, marker, engine string, trials []ratesTrial) (s *rates, err error) {
	programs, bursts := programsAndBursts(trials)
	t, err := startPaced(ctx, m, engine, programs)
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(t, err) }()
	turns, err := t.alternate(ctx, bursts, 1, m.how.rest, m.how.cell, func(turns *pacedTurns) {
		k := len(turns.On) - 1
		for _, g := range t.courses(turns) {
			fmt.Fprintf(m.out, "%s: overhead %+.1f%%, overlap %.1f of ideally %.1f after %.0f calls\n",
				callTrial(g.name, burstName(turns.On[k].Kind.Burst)), 100*g.overhead(k), g.overlap(k), g.ideal(k),
				g.recorded(k).calls)
		}
	})
	if err != nil {
		return nil, err
	}
	return &rates{marker, t.courses(turns)}, nil
}

func (s *rates) tables() []harness.Table {
	tables := []harness.Table{{Marker: s.marker, Table: s.gridTable()}}
	if len(s.guests) > 1 {
		tables = append(tables, harness.Table{Marker: s.marker + "-programs", Table: s.programsTable()})
	}
	return tables
}

// turn is the index of the turn with a burst, -1 if there is none.
func (s *rates) turn(b profile.Burst) int {
	return slices.IndexFunc(s.guests[0].turns.On, func(t harness.Turn[profile.Rate,
		[]recorded]) bool {
		return t.Kind.Burst == b
	})
}

// gridTable has the mean of all programs for each burst.
func (s *rates) gridTable() report.Table {
	table := report.Table{Header: []string{"SAMPLES"}}
	for _, stride := range strides {
		table.Header = append(table.Header, fmt.Sprintf("STRIDE %d", stride))
	}
	for _, samples := range samples {
		row := make([]string, 1+len(strides))
		row[0] = fmt.Sprint(samples)
		for i, stride := range strides {
			if k := s.turn(profile.Burst{Stride: stride, Samples: samples}); k >= 0 {
				row[1+i] = s.cell(k)
			}
		}
		if slices.ContainsFunc(row[1:], func(cell string) bool { return cell != "" }) {
			table.Add(row...)
		}
	}
	if control := s.control(); control != "" {
		table.Add(append([]string{"control", control}, make([]string, len(strides)-1)...)...)
	}
	return table
}

// cell has overhead, overlap and, in brackets, the ideal overlap in percent.
func (s *rates) cell(k int) string {
	return fmt.Sprintf("%+.1f / %.0f (%.0f)", 100*s.mean(course.overhead, k), s.mean(course.overlap, k),
		s.mean(course.ideal, k))
}

// mean is the mean of all guests.
func (s *rates) mean(of func(course, int) float64, k int) float64 {
	var values []float64
	for _, g := range s.guests {
		values = append(values, of(g, k))
	}
	mean, _ := moments(values)
	return mean
}

// control is the overhead of the turns without sampling, with its standard deviation.
func (s *rates) control() string {
	var means []float64
	for k := range len(s.guests[0].turns.On) - 1 {
		means = append(means, 100*s.mean(course.control, k))
	}
	if len(means) < 2 {
		return ""
	}
	mean, deviation := moments(means)
	return fmt.Sprintf("%+.1f ± %.1f", mean, deviation)
}

// programsTable has rows for programs.
func (s *rates) programsTable() report.Table {
	table := report.Table{Header: []string{"program", "edges"}}
	for _, b := range shownBursts {
		table.Header = append(table.Header, burstName(b))
	}
	for _, g := range s.guests {
		row := []string{g.name, fmt.Sprint(g.recorded(0).truth.Len())}
		for _, b := range shownBursts {
			k := s.turn(b)
			if k < 0 {
				row = append(row, "")
				continue
			}
			row = append(row, fmt.Sprintf("%+.1f / %.0f (%.0f)", 100*g.overhead(k), g.overlap(k), g.ideal(k)))
		}
		table.Add(row...)
	}
	return table
}

// moments are mean and standard deviation.
func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(max(len(values)-1, 1))
	}
	return mean, math.Sqrt(deviation)
}
