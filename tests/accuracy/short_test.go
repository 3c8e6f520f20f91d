package main

import (
	"os/exec"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// The accuracy of the agent, on fewer programs than in make accuracy.
func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	for _, tool := range []string{"gcc", "php"} {
		if _, err := exec.LookPath(tool); err != nil {
			needs.Missing(t, err)
		}
	}
	harness.TestShort(t, run, "-short")
}
