package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// A scale is the suffixes of a unit, each so many times the one before.
type scale struct {
	suffixes []string
	step     float64
	decimals int // of all but the first
}

var (
	// bytesScale is decimal, as in top and on the pages: 1 kB is 1000 bytes.
	bytesScale = scale{[]string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}, 1000, 1}
	timeScale  = scale{[]string{"ns", "us", "ms", "s"}, 1000, 2}
	countScale = scale{[]string{"", "k", "M", "G", "T", "P", "E"}, 1000, 2}
)

// of writes a value with the largest suffix of which there is at least one.
func (s scale) of(value float64) string {
	i := 0
	for ; i < len(s.suffixes)-1 && value >= s.step; i++ {
		value /= s.step
	}
	if i == 0 {
		return fmt.Sprintf("%.0f%s", value, s.suffixes[0])
	}
	return fmt.Sprintf("%.*f%s", s.decimals, value, s.suffixes[i])
}

// quantity writes a number of things: whole as long as it is short.
func quantity(value float64) string {
	const whole = 1e7
	if value < whole {
		return fmt.Sprintf("%.0f", value)
	}
	return countScale.of(value)
}

// manyOf writes a number and the plural of what it counts, which ends in s: "2 events", "1 event".
func manyOf(number, things string) string {
	if number == "1" {
		things = strings.TrimSuffix(things, "s")
	}
	return number + " " + things
}

// amount writes a value of a sample type for people: bytes, times, costs, and what a CPU does in large numbers with a suffix, and
// any other number whole.
func amount(t *pprof.ValueType, value float64) string {
	if cost, ok := stored.CostOf(t); ok {
		return cost.String(value)
	}
	switch {
	case t.Unit == stored.UnitBytes:
		return bytesScale.of(value)
	case t.Unit == stored.UnitTime:
		return timeScale.of(value)
	case t.Type == "cycles", t.Type == "instructions":
		return quantity(value)
	}
	return fmt.Sprintf("%.0f", value)
}

// typeWords are what values of a sample type are called behind an amount, where that is not the type's name.
var typeWords = map[string]string{"alloc_space": "allocated", "inuse_space": "in use"}

// word is what values of a sample type are called behind an amount.
func word(sampleType string) string {
	if w := typeWords[sampleType]; w != "" {
		return w
	}
	return stored.Printable(sampleType)
}

// plain writes a number with three digits that count, but not more than two behind the point.
func plain(value float64) string {
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

// cell is plain, but for small numbers it has two digits that count.
func cell(value float64) string {
	if magnitude := math.Abs(value); magnitude == 0 || magnitude >= 0.095 {
		return plain(value)
	}
	return strconv.FormatFloat(value, 'g', 2, 64)
}

// signed is plain with a sign.
func signed(value float64) string {
	text := plain(value)
	if value < 0 || text == "0" {
		return text
	}
	return "+" + text
}
