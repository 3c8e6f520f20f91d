package main

import (
	"io"
	"math"
	"os/exec"
	"strings"
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
		if part.Name != "paired" && i%quarters == time.Now().YearDay()%quarters { // see TestCostOfLastRelease
			today = append(today, part)
		}
	}
	if err := run(t.Context(), []string{"-short", "-parts", harness.List(today, partName)}, t.Output()); err != nil {
		t.Error(err)
	}
}

// That no change makes the agent cost much more than the last release did. While there is none, this
// version is compared with itself.
func TestCostOfLastRelease(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	if _, err := exec.LookPath("git"); err != nil {
		needs.Missing(t, err)
	}
	release, err := lastRelease(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	args := []string{"-short", "-parts", "paired", "-against", release}
	if err := run(t.Context(), args, io.MultiWriter(&printed, t.Output())); err != nil {
		t.Fatal(err)
	}
	if grown := harness.Misses(printed.String()); grown != "" {
		t.Errorf("this version costs more than 1.3 times what the last release did:\n%s", grown)
	}
}

func TestGrew(t *testing.T) {
	for ratio, want := range map[harness.Ratio]bool{
		{Median: 1, Low: 0.9, High: 1.1}:           false,
		{Median: 1.4, Low: 1.05, High: 1.9}:        false,
		{Median: 1.2, Low: 1.15, High: 1.3}:        false,
		{Median: 1.4, Low: 1.2, High: 1.5}:         true,
		{Median: 2, Low: math.Inf(-1), High: 3}:    false,
		{Median: math.NaN(), Low: 1.2, High: 1.25}: false,
	} {
		if got := grew(ratio); got != want {
			t.Errorf("grew(%v) = %v, want %v", ratio, got, want)
		}
	}
}

// quarters is after how many days each part has run.
const quarters = 4
