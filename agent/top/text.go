package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"
)

// columns is how wide a text is on a terminal.
func columns(text string) int { return uniseg.StringWidth(text) }

const ellipsis = "…"

// fit cuts what is longer than width.
func fit(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	var b strings.Builder
	room := width - columns(ellipsis)
	for g := uniseg.NewGraphemes(text); g.Next() && g.Width() <= room; room -= g.Width() {
		b.WriteString(g.Str())
	}
	if width < 1 {
		return ""
	}
	return b.String() + ellipsis
}

// shorten leaves out the beginning of a name: its end says more.
func shorten(name string, width int) string {
	n := columns(name)
	switch {
	case n <= width:
		return name
	case width < 1:
		return ""
	}
	rest := name
	for g := uniseg.NewGraphemes(name); n > width-columns(ellipsis) && g.Next(); {
		n -= g.Width()
		rest = rest[len(g.Str()):]
	}
	return ellipsis + rest
}

var bars = []rune(" ▁▂▃▄▅▆▇█")

// spark draws numbers against the largest of them. What is not zero has a bar.
func spark(values []float64) string {
	most := 0.0
	if len(values) > 0 {
		most = slices.Max(values)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", loads-min(len(values), loads)))
	for _, v := range values {
		at := 0
		if v > 0 {
			at = min(1+int(v/most*float64(len(bars)-2)+0.5), len(bars)-1)
		}
		b.WriteRune(bars[at])
	}
	return b.String()
}

func cpus(cpu, length time.Duration) string {
	if length <= 0 {
		return "0.00"
	}
	return fmt.Sprintf("%.2f", cpu.Seconds()/length.Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// size is a number of bytes for people.
func size(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if bytes < 999.5 {
			return fmt.Sprintf("%.3g %s", bytes, unit)
		}
		bytes /= 1000
	}
	return fmt.Sprintf("%.3g GB", bytes)
}
