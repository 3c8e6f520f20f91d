// Package faults holds the fault matrix: what can go wrong around the agent, and what must hold
// then. Each row is a test. docs/reliability.md is generated from the rows, so that the page
// promises exactly what the tests show.
//
//	go test ./tests/faults                    # short forms: what CI runs
//	go test ./tests/faults -long              # full forms: 300 JVM starts, 200 mounts, a soak of 20 minutes
//	go test ./tests/faults -run 'TestMatrix/targets'
//	go test ./tests/faults -run TestDocument -update
package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A Section is a group of rows with one theme.
type Section struct {
	Name  string // for -run: one lower-case word
	Title string // in the document
	Rows  []Row
}

// A Row is one fault and what must hold when it occurs. It has either a Test or the name of one
// Elsewhere.
type Row struct {
	Fault   string // what goes wrong: a noun phrase
	Holds   string // what must hold: one or two sentences
	Kernels string // on which kernels that is tested; empty: on the machine's own
	Test    func(t *testing.T)
	// Elsewhere has the tests in other packages that show it, as "bpf.TestKernelScanBudget",
	// "agent/host/proc.TestPool".
	Elsewhere []string
}

// Markdown returns the section as it stands in the document.
func (s Section) Markdown() string {
	table := report.Table{Header: []string{"Fault", "What holds", "Tested on", "Test"}}
	for _, row := range s.Rows {
		kernels := row.Kernels
		if kernels == "" {
			kernels = "the machine's kernel"
		}
		table.Add(row.Fault, row.Holds, kernels, row.tests(s))
	}
	return fmt.Sprintf("### %s\n\n%s", s.Title, table.Markdown())
}

// tests names the tests of a row.
func (r Row) tests(s Section) string {
	names := make([]string, 0, 1+len(r.Elsewhere))
	if r.Test != nil {
		names = append(names, "`"+s.Name+"/"+strings.ReplaceAll(r.Fault, " ", "_")+"`")
	}
	for _, name := range r.Elsewhere {
		names = append(names, "`"+name+"`")
	}
	return strings.Join(names, ", ")
}

// Markdown returns the whole matrix as it stands in the document.
func Markdown(matrix []Section) string {
	sections := make([]string, len(matrix))
	for i, s := range matrix {
		sections[i] = s.Markdown()
	}
	return strings.Join(sections, "\n")
}
