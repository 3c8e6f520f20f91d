package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// That make bench works. What it measures is no matter of pass or fail, so each run has a quarter
// of the parts: another one every day, as scripts/fuzz has it. All of them take minutes.
func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	for _, tool := range []string{"perf", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			needs.Missing(t, err)
		}
	}
	var today []harness.Section[bench]
	for i, part := range parts {
		if i%quarters == time.Now().YearDay()%quarters {
			today = append(today, part)
		}
	}
	if err := run(t.Context(), []string{"-short", "-parts", harness.List(today, partName)}, t.Output()); err != nil {
		t.Error(err)
	}
}

// quarters is after how many days each part has run.
const quarters = 4
