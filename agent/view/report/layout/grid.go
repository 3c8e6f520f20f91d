package layout

import (
	"bufio"
	"strings"
)

// A Grid is a table of right-aligned columns, with something of any length at the end of each row.
type Grid struct {
	Head []Row // lines of the heading, as many as needed
	Rows []Row
}

// A Row is one line of a Grid.
type Row struct {
	Cells []string
	Name  func(width int) string // the end in at most width columns, 0 for any number; nil for none
}

// Heading is the end of a line of the heading.
func Heading(text string) func(width int) string { return func(int) string { return text } }

// Write writes lines of at most width columns, 0 for any number, as far as the cells leave room for
// names.
func (g *Grid) Write(out *bufio.Writer, width int) {
	const gap = 2
	var widths []int
	for _, rows := range [][]Row{g.Head, g.Rows} {
		for _, r := range rows {
			widths = append(widths, make([]int, max(len(r.Cells)-len(widths), 0))...)
			for i, cell := range r.Cells {
				widths[i] = max(widths[i], Columns(cell))
			}
		}
	}
	taken := 0 // columns before the name
	for _, w := range widths {
		taken += w + gap
	}
	for _, rows := range [][]Row{g.Head, g.Rows} {
		for _, r := range rows {
			var line strings.Builder
			for i, w := range widths {
				cell := ""
				if i < len(r.Cells) {
					cell = r.Cells[i]
				}
				line.WriteString(strings.Repeat(" ", w-Columns(cell)) + cell)
				line.WriteString(strings.Repeat(" ", gap))
			}
			if r.Name != nil {
				line.WriteString(r.Name(Room(width, taken)))
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
}
