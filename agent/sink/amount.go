package sink

import (
	"fmt"
	"math"
	"strconv"

	pprof "github.com/google/pprof/profile"
)

// unitBytes is the unit of sizes.
const unitBytes = "bytes"

// A scale is the suffixes of a unit, each so many times the one before.
type scale struct {
	suffixes []string
	step     float64
	decimals int // of all but the first
}

var (
	// bytesScale counts as VMs do in their logs and options: 1 KB is 1024 bytes.
	bytesScale = scale{[]string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}, 1024, 1}
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

// threeDigits writes a number with three digits that count.
func threeDigits(value float64) string {
	i := 0
	for ; i < len(countScale.suffixes)-1 && value >= 999.5; i++ {
		value /= countScale.step
	}
	decimals := 2
	switch {
	case value >= 99.95 || i == 0 && value == math.Trunc(value):
		decimals = 0
	case value >= 9.995:
		decimals = 1
	}
	return strconv.FormatFloat(value, 'f', decimals, 64) + countScale.suffixes[i]
}

// amount writes a value of a sample type for people: bytes, times, and what a CPU does in large numbers with a suffix, and
// any other number whole.
func amount(t *pprof.ValueType, value float64) string {
	switch {
	case t.Unit == unitBytes:
		return bytesScale.of(value)
	case t.Unit == unitTime:
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
	return printable(sampleType)
}
