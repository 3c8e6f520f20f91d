package main

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

func TestOrder(t *testing.T) {
	codes := []vmruntime.Compilation{{VerifiedEntry: 1}, {VerifiedEntry: 2}, {VerifiedEntry: 3}}
	names := map[uint64]string{1: "x", 2: "y", 3: "z"}
	name := func(c vmruntime.Compilation) string { return names[c.VerifiedEntry] }
	order(codes, name, []*javaGraph{
		javaCalls(map[string]float64{"a y": 1, "a z": 3}), javaCalls(map[string]float64{"a y": 8, "a x": 2}),
	})
	if codes[0].VerifiedEntry != 2 || codes[1].VerifiedEntry != 3 || codes[2].VerifiedEntry != 1 {
		t.Errorf("got %v", codes)
	}
}
