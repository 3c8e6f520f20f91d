package main

import (
	"io"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// The short form finds no more false verdicts than expected by chance, and the tables have their
// places in the documentation.
func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	if err := run(t.Context(), []string{"-short"}, t.Output()); err != nil {
		t.Error(err)
	}
	if err := harness.CheckMarkers("../../"+docs, sections); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"-short", "-update"}, {"-none"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("run %q succeeds", args)
		}
	}
}
