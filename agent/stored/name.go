package stored

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
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
	if strings.HasSuffix(thing, "s") {
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

// MaxName bounds a name in any output, in bytes. The longest demangled C++ name in the libjvm of JDK 17 has 857;
// anything much longer is garbage or an attack.
const MaxName = 1024

// Unnamed stands for a frame that nobody has a name for.
const Unnamed = "[unknown]"

// Printable makes a name safe to store and to show: at most MaxName bytes, cut with an ellipsis; valid UTF-8;
// whatever is invisible or moves the cursor (control characters, line breaks, marks that change the direction of
// writing, lone bytes) written as an escape, \n or \u202e. Letters of any script stay as they are.
func Printable(name string) string {
	if len(name) <= MaxName && isPlain(name) {
		return name
	}
	const ellipsis = "…"
	var b strings.Builder
	// A name may be a megabyte long; look only at what can be kept.
	for rest := name[:min(len(name), MaxName+utf8.UTFMax)]; rest != ""; {
		r, width := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && width == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case strconv.IsPrint(r):
			b.WriteString(rest[:width])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		rest = rest[width:]
	}
	if b.Len() <= MaxName {
		return b.String()
	}
	return strings.ToValidUTF8(b.String()[:MaxName-len(ellipsis)], "") + ellipsis // no half of a rune at the cut
}

// isPlain says that name is printable ASCII, as nearly all are.
func isPlain(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}
