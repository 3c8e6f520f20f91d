package main

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	of := func(name string) cell {
		return cell{jdk: jvm.JDK{Version: 21, Release: "21.0.1"}, setup: setup{name: name}}
	}
	results := []result{
		{cell: of("a"), verdicts: []verdict{{shares, wrong, "x"}, {whole, silent, "y"}}},
		{cell: of("b"), absent: "refused"},
		{cell: of("d"), ways: []way{{Method: "m", Cause: "sleep", Truth: 100, OffCPU: 101, Wall: 99, Sampled: 10,
			Right: 0.5, Whole: 1, Others: "park 1s"}}},
		{cell: of("c"), err: errors.New("broken")},
	}
	for _, r := range results {
		k, err := readKept(path)
		if err == nil {
			err = k.add(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	results[2].verdicts = waitVerdicts(results[2].ways)
	k, err := readKept(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range results {
		if got, found := k.get(want.cell); !found || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v, want %+v", want.cell, got, want)
		}
	}
	if _, found := k.get(of("e")); found {
		t.Error("a cell that was never tried has a result")
	}
}
