package main

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// What chained contexts are meant to reach: these shares of the samples, in five programs of seven.
const (
	oneLevelAim    = 0.95
	threeLevelsAim = 0.90
	programsAim    = 5
)

// A contextReading is whose contexts must be right.
type contextReading struct {
	name  string
	right func(contextShares) [3]float64
}

// contextReadings are a strict one and that of who reads a profile.
func contextReadings() []contextReading {
	return []contextReading{
		{"samples not walked", func(s contextShares) [3]float64 { return s.right }},
		{"all samples", func(s contextShares) [3]float64 { return s.all }},
	}
}

// A contextAim counts the programs whose contexts are right often enough. A program without such samples is none.
type contextAim struct{ one, three, programs int }

func (a *contextAim) add(right [3]float64) {
	a.programs++
	if right[oneLevel] >= oneLevelAim {
		a.one++
	}
	if right[threeLevels] >= threeLevelsAim {
		a.three++
	}
}

func (a contextAim) reached() bool { return min(a.one, a.three) >= programsAim }

// aimsTable has a row for each setting, window and reading.
func (s *contexts) aimsTable() report.Table {
	table := report.Table{Header: []string{
		"sampled at", "time", "right of", fmt.Sprintf("first caller in %.0f %%", 100*oneLevelAim),
		fmt.Sprintf("first three in %.0f %%", 100*threeLevelsAim), fmt.Sprintf("aim: %d programs", programsAim),
	}}
	for i, setting := range s.settings {
		programs := asPrograms(s.byWindow(i))
		for w := range s.length.windows {
			for _, reading := range contextReadings() {
				var aim contextAim
				for _, p := range programs {
					aim.add(reading.right(p.shares[w]))
				}
				table.Add(setting.name, s.length.when(w), reading.name,
					fmt.Sprintf("%d of %d", aim.one, aim.programs), fmt.Sprintf("%d of %d", aim.three, aim.programs),
					report.Verdict(aim.reached()))
			}
		}
	}
	return table
}
