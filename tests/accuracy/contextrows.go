package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A contextRow is one program's results, by window or by setting.
type contextRow struct {
	program string
	vm      bool    // the program runs in the reference guest
	java    float64 // share of samples that have a Java frame; NaN of the reference guest
	shares  []contextShares
}

// byWindow has a row for each program, of one setting.
func (s *contexts) byWindow(setting int) (rows []contextRow) {
	for i := range s.results {
		recorded := &s.results[i].recorded[setting]
		row := s.results[i].row(recorded.java)
		for w := range recorded.windows {
			row.shares = append(row.shares, sharesOf(&recorded.windows[w].Contexts))
		}
		rows = append(rows, row)
	}
	return rows
}

// bySetting has a row for each program, of all windows together.
func (s *contexts) bySetting() (rows []contextRow) {
	for i := range s.results {
		var shares []contextShares
		java := 0.0
		for j := range s.results[i].recorded {
			recorded := &s.results[i].recorded[j]
			sum := recorded.sum()
			shares = append(shares, sharesOf(&sum))
			java += recorded.java / float64(len(s.results[i].recorded))
		}
		row := s.results[i].row(java)
		row.shares = shares
		rows = append(rows, row)
	}
	return rows
}

func (r *contextResult) row(java float64) contextRow {
	if r.vm {
		java = math.NaN()
	}
	return contextRow{program: r.program, vm: r.vm, java: java}
}

// referenceGuest is the name of the means of its programs.
const referenceGuest = "reference guest"

// meanRow has the means of the reference guest's programs, and their number.
func meanRow(rows []contextRow) (mean contextRow, of int) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r contextRow) bool { return !r.vm })
	mean = contextRow{program: referenceGuest, vm: true, java: math.NaN()}
	for i := 0; len(rows) > 0 && i < len(rows[0].shares); i++ {
		var shares []contextShares
		for _, r := range rows {
			shares = append(shares, r.shares[i])
		}
		mean.shares = append(mean.shares, meanShares(shares))
	}
	return mean, len(rows)
}

// withMean appends the mean of the reference guest if several of its programs are there.
func withMean(rows []contextRow) []contextRow {
	mean, of := meanRow(rows)
	if of > 1 {
		mean.program = "mean of the " + referenceGuest
		rows = append(rows, mean)
	}
	return rows
}

// asPrograms counts the reference guest as one program: its mean stands for its programs.
func asPrograms(rows []contextRow) []contextRow {
	mean, of := meanRow(rows)
	rows = slices.DeleteFunc(rows, func(r contextRow) bool { return r.vm })
	if of > 0 {
		rows = append(rows, mean)
	}
	return rows
}

// contextShares are the counts of a contextLine as shares, from 0 to 1; NaN for none.
type contextShares struct {
	walked float64 // share of all samples

	// Of the samples that were not walked. Unchecked ones count as wrong.
	right                       [3]float64 // by profile.ContextLevels: first caller, first three, all
	ambiguous, fitted, unplaced float64

	all [3]float64 // right, of all samples: walked ones count as right
}

func sharesOf(c *profile.Contexts) (s contextShares) {
	samples, linked := float64(c.Walked+c.Linked), float64(c.Linked)
	s.walked = float64(c.Walked) / samples
	s.ambiguous, s.fitted, s.unplaced = float64(c.Ambiguous)/linked, float64(c.Fitted)/linked,
		float64(c.Unplaced)/linked
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

// meanShares weighs all equally. NaN values are left out of the mean.
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

// inPercent formats a share, or - if there are no samples.
func inPercent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*share)
}
