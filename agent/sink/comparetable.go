package sink

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// show writes the measures and the table of differences. The function name names a thing in at most width columns, 0
// for any number.
func show[K comparable](c *comparison, p *pairing[K], column string, name func(key K, width int) string) {
	unit := c.sides[0].unit()
	fmt.Fprintf(c.out, "Comparison of %s by %v\n", unit, c.opts.By)
	for side, letter := range []string{"A", "B"} {
		writeFolded(c.out, fmt.Sprintf("%s: %s, %s %s, %s", letter, c.names[side], c.sides[side].amount(p.totals[side]), word(unit),
			plural(len(p.weights[side]), c.opts.By.String())), c.opts.Width)
	}
	fmt.Fprintf(c.out, "overlap      %7.2f  of 100: the share of the %s that both have in common\n", p.overlap(), unit)
	if r := p.correlation(); math.IsNaN(r) {
		fmt.Fprintf(c.out, "correlation        -  has no value where all weights are equal\n")
	} else {
		fmt.Fprintf(c.out, "correlation  %7.4f  of 1: how well the one predicts the other\n", r)
	}

	// The table is in percentage points: a thing that got ten times heavier matters if it is heavy now.
	list := p.differences()
	shown, rest := first(c.opts.N, list)
	if len(list) == 0 {
		fmt.Fprintf(c.out, "\nNo share differs\n")
		return
	}
	fmt.Fprintf(c.out, "\nLargest differences\n%8s %8s %8s  %s\n", "A", "B", "B - A", column)
	for _, d := range shown {
		line := fmt.Sprintf("%7.2f%% %7.2f%% %+7.2f%%  ", d.shares[0], d.shares[1], d.by())
		fmt.Fprint(c.out, line, name(d.key, room(c.opts.Width, len(line))), "\n")
	}
	if len(rest) > 0 {
		var sums [2]float64
		for _, d := range rest {
			sums[0] += d.shares[0]
			sums[1] += d.shares[1]
		}
		fmt.Fprintf(c.out, "%7.2f%% %7.2f%% %8s  %s\n", sums[0], sums[1], "", plural(len(rest), "smaller difference"))
	}
}

// plural counts things: 1 edge, 2 edges, 2 classes.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// arrowed writes an edge in at most width columns, 0 for any number.
func arrowed(caller, callee string, width int) string {
	const arrow = " -> "
	if width > 0 {
		caller, callee = shortenBoth(caller, callee, width-len(arrow))
	}
	return caller + arrow + callee
}

// shortenBoth makes two names fit into width columns together. The shorter one leaves what it does not need.
func shortenBoth(a, b string, width int) (string, string) {
	lenA, lenB := utf8.RuneCountInString(a), utf8.RuneCountInString(b)
	forA := min(max(width/2, width-lenB), lenA)
	return shorten(a, forA), shorten(b, width-forA)
}
