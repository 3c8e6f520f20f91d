package php

import (
	"errors"
	"maps"
	"os"
	"testing"
)

func TestTruth(t *testing.T) {
	truth, err := Truth()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range truth {
		total += n
	}
	if total != 101 { // as the program says of itself
		t.Errorf("%d calls a round: %v", total, truth)
	}
}

// PHP counts what the program says of itself.
func TestCount(t *testing.T) {
	counts, err := Count(t.Context(), Known)
	if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, err := Truth()
	if err != nil {
		t.Fatal(err)
	}
	for call := range want {
		if call.Callee == "numbers" {
			want[call] = 1 // a generator
		}
	}
	for call := range counts {
		if call.Callee == "Round::all" {
			delete(counts, call) // made once an order, not in each round
		}
	}
	if !maps.Equal(counts, want) {
		t.Errorf("got  %v\nwant %v", counts, want)
	}
}

func TestParseCountsRefuses(t *testing.T) {
	for _, line := range []string{"", "{", `[[1, 2, "b", 3]]`, `[["a", "2", "b", 3]]`, `[["a", 2, "b"]]`} {
		if got, err := parseCounts([]byte(line)); err == nil {
			t.Errorf("parsed %q as %v", line, got)
		}
	}
}
