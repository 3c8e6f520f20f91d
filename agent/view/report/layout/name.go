package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Room returns how many columns of a line are left for a name, 0 for any number.
func Room(width, taken int) int {
	const least = 20 // shorter names say nothing; then the line is longer
	if width <= 0 {
		return 0
	}
	return max(width-taken, least)
}

// Shorten makes name at most width runes long, 0 for any length: first without its arguments, then
// with short packages, then without its beginning, since the method is at the end. A leaf [inlined
// in M] keeps the words, and its M is shortened.
func Shorten(name string, width int) string {
	if width <= 0 || len(name) <= width {
		return name
	}
	runes := []rune(name)
	if open := arguments(name); open > 0 && len(runes) > width {
		runes = []rune(name[:open] + "(…)")
	}
	full := string(runes)
	if short := stored.Abbreviate(full, len(runes)-width, 2); Columns(short) <= width {
		return short
	}
	before, method, after := stored.SplitInlined(full)
	if left := width - len(before); left >= leastInlined {
		return before + KeepEnd(method+after, left)
	}
	return KeepEnd(full, width)
}

// leastInlined is how many columns of M in [inlined in M] are shown at least, with the bracket.
const leastInlined = 8

// KeepEnd makes text at most width columns wide, 0 for any width, by cutting its beginning.
func KeepEnd(text string, width int) string {
	if width <= 0 || Columns(text) <= width {
		return text
	}
	runes := []rune(text)
	runes = runes[max(len(runes)-width, 0):] // each has a column or more, but for marks on another
	for len(runes) > 0 && Columns(string(runes)) >= width {
		runes = runes[1:]
	}
	return "…" + string(runes)
}

// Columns is how many columns of a terminal a text takes: emoji and letters of East Asia have two.
func Columns(text string) int {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return uniseg.StringWidth(text)
		}
	}
	return len(text)
}

// KeepStart makes a text at most width columns wide, 0 for any width, by cutting its end.
func KeepStart(text string, width int) string {
	if width <= 0 || Columns(text) <= width {
		return text
	}
	runes := []rune(text)
	runes = runes[:min(len(runes), width)]
	for len(runes) > 0 && Columns(string(runes)) >= width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

// arguments returns where the arguments at the end of a C++ name begin, or -1. Other parentheses
// are part of the name: (anonymous namespace)::f(int), Go's pkg.(*T).f.
func arguments(name string) int {
	name = strings.TrimSuffix(name, " const")
	if !strings.HasSuffix(name, ")") {
		return -1
	}
	depth := 0
	for i := len(name) - 1; i >= 0; i-- {
		switch name[i] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// Arrowed writes an edge in at most width columns, 0 for any number.
func Arrowed(caller, callee string, width int) string {
	const arrow = " -> "
	if width > 0 {
		caller, callee = shortenBoth(caller, callee, width-len(arrow))
	}
	return caller + arrow + callee
}

// shortenBoth makes two names fit into width columns together. The shorter one leaves what it does
// not need.
func shortenBoth(a, b string, width int) (string, string) {
	lenA, lenB := Columns(a), Columns(b)
	forA := min(max(width/2, width-lenB), lenA)
	return Shorten(a, forA), Shorten(b, width-forA)
}

// Path names a context of a tree by its methods, outermost first, in at most width columns, 0 for
// any number, by cutting its beginning.
func Path[K comparable](tree *cct.Tree[K], id cct.NodeID, width int, name func(K) string) string {
	var names []string
	for id != cct.Root && (width == 0 || len(names) <= width) { // more would not be seen
		// Direct recursion is one name, or it would be all that there is room for.
		key, levels := tree.Node(id).Key, 0
		for ; id != cct.Root && tree.Node(id).Key == key; id = tree.Node(id).Parent {
			levels++
		}
		text := name(key)
		if levels > 1 {
			text += fmt.Sprintf(" (%d levels)", levels)
		}
		names = append(names, text)
	}
	slices.Reverse(names)
	return KeepEnd(strings.Join(names, " > "), width)
}
