package main

import (
	"math"
	"slices"
)

// A contextRow is what one program says, by window or by setting.
type contextRow struct {
	program string
	vm      bool    // of the reference guest
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

// meanRow has the means of the reference guest's programs, of which it tells how many there are.
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
