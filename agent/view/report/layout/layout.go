// Package layout lays out the text of views: tables and sentences of a given width, names that are
// shortened to fit, and numbers with units.
package layout

import (
	"bufio"
	"fmt"
	"strings"
)

// Fold writes text in lines of at most width columns, broken at spaces and indented from the second
// on.
func Fold(out *bufio.Writer, text string, width int) {
	const indent = "  "
	column := 0
	for i, word := range strings.Fields(text) {
		length := Columns(word)
		switch {
		case i == 0:
		case width > 0 && column+1+length > width:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += length
	}
	out.WriteByte('\n')
}

// First returns the first n of list, 0 for all, and the rest.
func First[T any](n int, list []T) (shown, rest []T) {
	if n <= 0 || n >= len(list) {
		return list, nil
	}
	return list[:n], list[n:]
}

// Flush ends a view; out has kept the first error of all writes.
func Flush(out *bufio.Writer, view string) error {
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", view, err)
	}
	return nil
}
