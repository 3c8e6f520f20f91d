package prom

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// other is the label value of everything that has no series of its own.
	other = "(other)"
	// native is the runtime label of processes without a managed runtime: to Prometheus an empty
	// label is a missing one.
	native = "native"
	// maxLabel bounds a label value, in bytes. Longer Java names exist, but are not read by people.
	maxLabel = 200
)

// hidden matches what HotSpot appends to the names of hidden classes: a counter and the address of
// the class. Both change with every start of the guest, and would make a new series each time.
//
//	Shop$$Lambda$14/0x0000000840066040.apply  JDK 17; inside the VM the slash is a plus
//	Shop$$Lambda/0x00007f5c1c000a00.apply     JDK 21
var hidden = regexp.MustCompile(`(\$\$Lambda)\$[0-9]+|[/+.]0x[0-9a-fA-F]{8,16}`)

// label makes any text fit for a label value: valid UTF-8 of printable runes, not empty, at most
// maxLabel bytes, and cut on a rune's boundary with an ellipsis. Two names with the same label
// share a series. One character becomes one "?", not an escape as in profiles (symbol.Printable):
// names that a hostile process varies then share series, and labels stay short.
func label(name string) string {
	const ellipsis = "…"
	// It is a function without a name, whose address changes with each build.
	if strings.HasPrefix(name, "[unknown ") && strings.Contains(name, "+0x") {
		name = ""
	}
	// Bound the work before looking at the content: a hostile name may be a megabyte long.
	cut := len(name) > 4*maxLabel
	if cut {
		name = name[:4*maxLabel]
	}
	name = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	if strings.Contains(name, "0x") || strings.Contains(name, "$$Lambda") { // spares most names the regexp
		name = hidden.ReplaceAllString(name, "$1")
	}
	if len(name) > maxLabel {
		cut = true
		name = name[:maxLabel-len(ellipsis)]
		for !utf8.ValidString(name) { // at most three bytes of a rune that was cut in two
			name = name[:len(name)-1]
		}
	}
	switch {
	case name == "":
		return "[unknown]"
	case cut:
		return name + ellipsis
	}
	return name
}

// runtimeLabel is the label of a Process.Runtime.
func runtimeLabel(runtime string) string {
	if runtime == "" {
		return native
	}
	return label(runtime)
}
