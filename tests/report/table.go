// Package report prints tables, on a terminal and into generated sections of the documentation.
package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A Table has a header and rows of as many cells.
type Table struct {
	Header []string
	Rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Print writes the table in aligned columns.
func (t *Table) Print(w io.Writer) error {
	aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(aligned, strings.Join(t.Header, "\t"))
	for _, row := range t.Rows {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}
	if err := aligned.Flush(); err != nil {
		return fmt.Errorf("print table: %w", err)
	}
	return nil
}

// Markdown returns the table as GitHub's Markdown has it.
func (t *Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) {
		b.WriteString("|")
		for _, cell := range cells {
			b.WriteString(" " + strings.ReplaceAll(cell, "|", `\|`) + " |")
		}
		b.WriteString("\n")
	}
	line(t.Header)
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}

// Verdict is the word for an aim that was reached or not.
func Verdict(reached bool) string {
	if reached {
		return "ok"
	}
	return "MISSED"
}
