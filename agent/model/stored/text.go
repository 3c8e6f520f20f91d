package stored

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// ThreeDigits writes a number with three digits that count.
func ThreeDigits(value float64) string {
	suffixes := [...]string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for ; i < len(suffixes)-1 && value >= 999.5; i++ {
		value /= 1000
	}
	decimals := 2
	switch {
	case value >= 99.95 || i == 0 && value == math.Trunc(value):
		decimals = 0
	case value >= 9.995:
		decimals = 1
	}
	return strconv.FormatFloat(value, 'f', decimals, 64) + suffixes[i]
}

// Plural counts things: 1 edge, 2 edges, 2 classes.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") || strings.HasSuffix(thing, "ch") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Percent writes the share that part is of all.
func Percent(part, all float64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*part/all)
}

// MaxName bounds a name in any output, in bytes. The longest demangled C++ name in the libjvm of
// JDK 17 has 857; anything much longer is garbage or an attack.
const MaxName = 1024

// Unnamed stands for a frame that nobody has a name for.
const Unnamed = symbol.Unknown

// IsUnnamed reports whether a name stands for such a frame.
func IsUnnamed(name string) bool { return symbol.IsUnknown(name) }

// Printable makes a name safe to store and to show, as symbol.Printable does, with at most MaxName
// bytes.
func Printable(name string) string { return symbol.Printable(name, MaxName) }

// inlinedIn begins a leaf [inlined in M].
const inlinedIn = "[inlined in "

// SplitInlined returns the parts of a leaf [inlined in M]: what is before M, M, and the bracket
// behind it. Of all other names the method is all.
func SplitInlined(name string) (before, method, after string) {
	if m, ok := strings.CutPrefix(name, inlinedIn); ok && strings.HasSuffix(m, "]") {
		return inlinedIn, strings.TrimSuffix(m, "]"), "]"
	}
	return "", name, ""
}

// Abbreviate shortens the name of a Java method or class by so many columns if it can: packages, to
// their first letters, from the left. It leaves as many of the last parts as they are: two of a
// method, one of a class. In a leaf [inlined in M] it is M that becomes shorter. Other names stay
// as they are.
func Abbreviate(name string, excess, last int) string {
	before, method, after := SplitInlined(name)
	if excess <= 0 || strings.ContainsAny(method, "( [") {
		return name
	}
	parts := strings.Split(method, ".")
	for i := 0; i < len(parts)-last && excess > 0; i++ {
		part := parts[i]
		if len(part) < 2 || part[0] < 'a' || part[0] > 'z' {
			break // a class
		}
		parts[i] = part[:1]
		excess -= utf8.RuneCountInString(part) - 1
	}
	return before + strings.Join(parts, ".") + after
}
