package main

import (
	"os/exec"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// That make bench works. What it measures is no matter of pass or fail.
func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	for _, tool := range []string{"perf", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			needs.Missing(t, err)
		}
	}
	if err := run(t.Context(), []string{"-short"}, t.Output()); err != nil {
		t.Error(err)
	}
}
