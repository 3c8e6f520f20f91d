package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// The page has a place for each table.
func TestMarkers(t *testing.T) {
	for _, name := range []string{"paced", "paced-pairs"} {
		if _, err := report.Section("../../../"+docs, name); err != nil {
			t.Error(err)
		}
	}
}
