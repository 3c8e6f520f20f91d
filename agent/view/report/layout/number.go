package layout

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// A Scale is the suffixes of a unit, each so many times the one before.
type Scale struct {
	suffixes []string
	step     float64
	decimals int // decimals of all suffixes but the first
}

var (
	// Bytes is decimal, as in top and on the pages: 1 kB is 1000 bytes.
	Bytes = Scale{[]string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}, 1000, 1}
	// Time is from nanoseconds to seconds.
	Time       = Scale{[]string{"ns", "us", "ms", "s"}, 1000, 2}
	countScale = Scale{[]string{"", "k", "M", "G", "T", "P", "E"}, 1000, 2}
)

// Format writes a value with the largest suffix of which there is at least one.
func (s Scale) Format(value float64) string {
	i := 0
	for ; i < len(s.suffixes)-1 && value >= s.step; i++ {
		value /= s.step
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", value, s.suffixes[0])
	}
	return fmt.Sprintf("%.*f%s", s.decimals, value, s.suffixes[i])
}

// Quantity writes a number of things: whole as long as it is short.
func Quantity(value float64) string {
	const whole = 1e7
	if value < whole {
		return fmt.Sprintf("%.0f", value)
	}
	return countScale.Format(value)
}

// ManyOf writes a number and the plural of what it counts, which ends in s: "2 events", "1 event".
func ManyOf(number, things string) string {
	if number == "1" {
		things = strings.TrimSuffix(things, "s")
	}
	return number + " " + things
}

// Amount writes a value of a sample type for people: bytes, times, costs, and what a CPU does in
// large numbers with a suffix, and any other number whole.
func Amount(t *pprof.ValueType, value float64) string {
	if cost, ok := stored.CostOf(t); ok {
		return cost.String(value)
	}
	switch {
	case t.Unit == stored.UnitBytes:
		return Bytes.Format(value)
	case t.Unit == stored.UnitTime:
		return Time.Format(value)
	case t.Type == "cycles", t.Type == "instructions":
		return Quantity(value)
	}
	return fmt.Sprintf("%.0f", value)
}

// typeWords are what values of a sample type are called behind an amount, where that is not the
// type's name.
var typeWords = map[string]string{"alloc_space": "allocated", "inuse_space": "in use"}

// Word is what values of a sample type are called behind an amount.
func Word(sampleType string) string {
	if w := typeWords[sampleType]; w != "" {
		return w
	}
	return stored.Printable(sampleType)
}

// Plain writes a number with three digits that count, but not more than two behind the point.
func Plain(value float64) string {
	places := 2
	switch magnitude := math.Abs(value); {
	case magnitude >= 99.95:
		places = 0
	case magnitude >= 9.995:
		places = 1
	}
	text := strconv.FormatFloat(value, 'f', places, 64)
	if places > 0 {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}

// Cell is Plain, but for small numbers it has two digits that count.
func Cell(value float64) string {
	if magnitude := math.Abs(value); magnitude == 0 || magnitude >= 0.095 {
		return Plain(value)
	}
	return strconv.FormatFloat(value, 'g', 2, 64)
}

// Signed is Plain with a sign.
func Signed(value float64) string {
	text := Plain(value)
	if value < 0 || text == "0" {
		return text
	}
	return "+" + text
}

// Percent writes a share in whole percent.
func Percent(share float64) string { return fmt.Sprintf("%.0f%%", 100*share) }
