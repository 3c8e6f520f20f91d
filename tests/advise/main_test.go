package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

// The page has a place for each table.
func TestMarkers(t *testing.T) {
	if err := harness.CheckMarkers("../../"+docs, sections(nil)); err != nil {
		t.Error(err)
	}
}
