package report

import (
	"bufio"
	"strings"
	"unicode/utf8"
)

// A grid is a table of right-aligned columns, with something of any length at the end of each row.
type grid struct {
	head []gridRow // lines of the heading, as many as needed
	rows []gridRow
}

type gridRow struct {
	cells []string
	name  func(width int) string // the end in at most width columns, 0 for any number; nil for none
}

// heading is the end of a line of the heading.
func heading(text string) func(width int) string { return func(int) string { return text } }

// write writes lines of at most width columns, 0 for any number, as far as the cells leave room for names.
func (g *grid) write(out *bufio.Writer, width int) {
	const gap = 2
	var widths []int
	for _, rows := range [][]gridRow{g.head, g.rows} {
		for _, r := range rows {
			widths = append(widths, make([]int, max(len(r.cells)-len(widths), 0))...)
			for i, cell := range r.cells {
				widths[i] = max(widths[i], utf8.RuneCountInString(cell))
			}
		}
	}
	taken := 0 // columns before the name
	for _, w := range widths {
		taken += w + gap
	}
	for _, rows := range [][]gridRow{g.head, g.rows} {
		for _, r := range rows {
			var line strings.Builder
			for i, w := range widths {
				cell := ""
				if i < len(r.cells) {
					cell = r.cells[i]
				}
				line.WriteString(strings.Repeat(" ", w-utf8.RuneCountInString(cell)) + cell)
				line.WriteString(strings.Repeat(" ", gap))
			}
			if r.name != nil {
				line.WriteString(r.name(room(width, taken)))
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
}
