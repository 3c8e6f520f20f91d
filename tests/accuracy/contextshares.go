package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// contextShares are the counts of a contextLine as shares, from 0 to 1; NaN of nothing.
type contextShares struct {
	walked float64 // of all samples

	// Of the samples that were not walked. What was not checked is not right.
	right                       [3]float64 // by agent.ContextLevels: first caller, first three, all
	ambiguous, fitted, unplaced float64

	all [3]float64 // right, of all samples: those that were walked are
}

func sharesOf(c *profile.Contexts) (s contextShares) {
	samples, linked := float64(c.Walked+c.Linked), float64(c.Linked)
	s.walked = float64(c.Walked) / samples
	s.ambiguous, s.fitted, s.unplaced = float64(c.Ambiguous)/linked, float64(c.Fitted)/linked, float64(c.Unplaced)/linked
	var right [3]uint64
	if c.Check != nil {
		right = c.Check.Right
	}
	for i, n := range right {
		s.right[i] = float64(n) / linked
		s.all[i] = float64(n+c.Walked) / samples
	}
	return s
}

// sumContexts adds the samples of all windows.
func sumContexts(lines []contextLine) (sum profile.Contexts) {
	for i := range lines {
		l := &lines[i]
		sum.Mode = l.Mode
		sum.Walked += l.Walked
		sum.Linked += l.Linked
		sum.Ambiguous += l.Ambiguous
		sum.Fitted += l.Fitted
		sum.Unplaced += l.Unplaced
		if l.Check != nil {
			if sum.Check == nil {
				sum.Check = new(profile.ContextCheck)
			}
			sum.Check.Samples += l.Check.Samples
			for level, n := range l.Check.Right {
				sum.Check.Right[level] += n
			}
		}
	}
	return sum
}

// meanShares weighs all alike. What is NaN in one is left out of the mean.
func meanShares(of []contextShares) (mean contextShares) {
	each := func(pick func(*contextShares) *float64) {
		var sum, n float64
		for i := range of {
			if v := *pick(&of[i]); !math.IsNaN(v) {
				sum += v
				n++
			}
		}
		*pick(&mean) = sum / n
	}
	each(func(s *contextShares) *float64 { return &s.walked })
	each(func(s *contextShares) *float64 { return &s.ambiguous })
	each(func(s *contextShares) *float64 { return &s.fitted })
	each(func(s *contextShares) *float64 { return &s.unplaced })
	for level := range mean.right {
		each(func(s *contextShares) *float64 { return &s.right[level] })
		each(func(s *contextShares) *float64 { return &s.all[level] })
	}
	return mean
}

// across writes one value of each recording or window into a cell.
func across[T any](of []T, write func(T) string) string {
	var cells []string
	for _, v := range of {
		cells = append(cells, write(v))
	}
	return strings.Join(cells, " / ")
}

// inPercent writes a share, or - for that of nothing.
func inPercent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*share)
}
