package faults

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/kernels/observed"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// matrix is every section, in the order of the document. Each theme's rows are in a file of their
// own.
var matrix = []Section{
	{Name: "targets", Title: "The agent damages no target", Rows: slices.Concat(
		kernelTargetRows,
		redZoneRows,
		writesRows,
	)},
	{Name: "agent", Title: "No target hurts the agent or another target", Rows: slices.Concat(
		kernelAgentRows,
		[]Row{},
		hostileRows,
		startingRows,
		mountRows,
		starvedRows,
		redefinedRows,
		hangRows,
		wildPageRows,
	)},
	{Name: "service", Title: "The agent behaves as a service", Rows: slices.Concat(
		serviceRows,
		memoryRows,
		historyRows,
		observingRows,
	)},
}

var (
	long   = flag.Bool("long", false, "run the full forms of tests that have a short one")
	update = flag.Bool("update", false, "write the matrix into "+document)
)

const document = "../../docs/reliability.md"

// built is the agent under test. It is in a directory that every user may enter.
var built profiler.Agent

func TestMain(m *testing.M) { harness.RunTests(m, &built) }

// TestMatrix runs the rows that have their test here.
func TestMatrix(t *testing.T) {
	for _, section := range matrix {
		t.Run(section.Name, func(t *testing.T) {
			for _, row := range section.Rows {
				if row.Test != nil {
					t.Run(row.Fault, row.Test)
				}
			}
		})
	}
}

// Each row is complete, and names existing tests.
func TestRows(t *testing.T) {
	for _, section := range matrix {
		for _, row := range section.Rows {
			if row.Fault == "" || row.Holds == "" || row.Test == nil && len(row.Elsewhere) == 0 {
				t.Errorf("%s: row %q lacks a fault, what holds, or a test", section.Name, row.Fault)
			}
			for _, name := range row.Elsewhere {
				if err := exists(name); err != nil {
					t.Errorf("%s: row %q: %v", section.Name, row.Fault, err)
				}
			}
		}
	}
}

// exists fails if no test file of the package defines the test: "bpf.TestKernelWalk" is in a file
// bpf/*_test.go.
func exists(name string) error {
	dir, test, ok := strings.Cut(name, ".")
	if !ok {
		return fmt.Errorf("test %q is not of the form package.Test", name)
	}
	test, _, _ = strings.Cut(test, "/")
	files, err := os.ReadDir("../../" + dir)
	if err != nil {
		return fmt.Errorf("test %q: %w", name, err)
	}
	definition := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(test) + `\(`)
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile("../../" + dir + "/" + file.Name())
		if err != nil {
			return err
		}
		if definition.Match(text) {
			return nil
		}
	}
	return fmt.Errorf("no test %q", name)
}

// TestDocument compares the document with the matrix, and with what was found out about kernels.
func TestDocument(t *testing.T) {
	known, err := observed.Read("../../agent/probe/attach/testdata/kernels.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"matrix": Markdown(matrix),
		"kernels": observed.Markdown(known, withoutFeature)} {
		if *update {
			if err := report.Update(document, name, want); err != nil {
				t.Fatal(err)
			}
		}
		got, err := report.Section(document, name)
		if err != nil {
			t.Fatal(err)
		}
		if got != strings.TrimSpace(want) {
			t.Errorf("%s is not what the %s say: go test ./tests/faults -run TestDocument -update", document, name)
		}
	}
	for _, k := range known {
		for _, f := range k.Features {
			if withoutFeature[f.Name] == "" {
				t.Errorf("nothing says what the agent does without %q", f.Name)
			}
		}
	}
}

// times is how often a test repeats an operation: full with -long, else short.
func times(short, full int) int {
	if *long {
		return full
	}
	return short
}

// finish runs a command to its end and returns what it printed and its exit code.
func finish(t *testing.T, name string, args ...string) (output string, code int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	text, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), command.ProcessState.ExitCode()
}
