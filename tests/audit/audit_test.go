package main

import (
	"io"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

// The short form finds no more false verdicts than chance allows, and the tables have their places in the documentation.
func TestShort(t *testing.T) {
	if err := run(t.Context(), []string{"-short"}, io.Discard); err != nil {
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
