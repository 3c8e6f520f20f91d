package main

import (
	"os"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// A real program beside what the kernel and the JVM say of it.
func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	if _, err := os.Stat("/usr/share/java/rhino.jar"); err != nil {
		needs.Missing(t, err)
	}
	if err := run(t.Context(), []string{"-short"}, t.Output()); err != nil {
		t.Error(err)
	}
}
