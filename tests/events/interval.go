package events

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// An Interval is a time in a table of report, and half of its interval.
type Interval struct {
	Time, Within time.Duration
	Known        bool // an interval was printed
}

// Holds reports whether the interval contains a time that is known within a tolerance.
func (i Interval) Holds(truth, tolerance time.Duration) bool {
	return (i.Time - truth).Abs() <= i.Within+tolerance
}

var intervalRow = regexp.MustCompile(`^ *[0-9.]+% +([0-9.hmsu]+) +±([0-9.]+%|\?) .* (\S+)$`)

// Intervals returns the rows of tables of wall or off-CPU time, by their names: those of methods
// that the report indents with nothing.
func Intervals(report string) map[string]Interval {
	rows := map[string]Interval{}
	for line := range strings.Lines(report) {
		m := intervalRow.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		d, err := time.ParseDuration(m[1])
		if err != nil {
			continue
		}
		row := Interval{Time: d}
		if percent, err := strconv.ParseFloat(strings.TrimSuffix(m[2], "%"), 64); err == nil {
			row.Within, row.Known = time.Duration(math.Ceil(percent/100*float64(d))), true
		}
		if _, known := rows[m[3]]; !known {
			rows[m[3]] = row
		}
	}
	return rows
}
