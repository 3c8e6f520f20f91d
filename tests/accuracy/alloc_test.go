package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

func TestPlanAllocations(t *testing.T) {
	jdks := []jvm.JDK{{Version: 17, Release: "17.0.1"}, {Version: 25, Release: "25"}}
	if n := len(allocTrials(jdks, false)); n != len(allocPrograms)*len(allocLengths)+len(allocBuffers) {
		t.Errorf("%d trials", n)
	}
	control := harness.Chosen(allocTrials(jdks, false), harness.Choice{Run: regexp.MustCompile("buffers of 1531k$")})
	if len(control) != 1 || !slices.Contains(control[0].flags(), "-XX:TLABSize=1531k") {
		t.Errorf("the control is %v", control)
	}
	short := allocTrials(jdks, true)
	if len(short) != 1 || short[0].String() != "alloc, Xalan, 3s, JDK 17.0.1" {
		t.Errorf("in short %v", short)
	}
}

// allocated is a recording with two exact rows of 100 objects each and two sampled rows.
func allocated(bytes ...int64) *profiler.Recording {
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "alloc_objects"}, {Type: "alloc_space"},
		{Type: "events"}}}
	add := func(class, kind string, values ...int64) {
		label := map[string][]string{"class": {class}, "kind": {kind}}
		p.Sample = append(p.Sample, &pprof.Sample{Label: label, Value: values})
	}
	for i, class := range []string{"int[]", "byte[]"} {
		add(class, "exact", 100, 5000, 100)
		add(class, "", bytes[i]/50, bytes[i], 20)
	}
	return &profiler.Recording{Profile: p, Output: "what it printed"}
}

func TestJudgeAllocations(t *testing.T) {
	trial := allocTrial{program: "Xalan"}
	good, err := trial.judge(allocated(5200, 4800))
	if err != nil {
		t.Fatal(err)
	}
	if good.events != 40 || good.overlap.Bytes < 97.9 || good.overlap.Bytes > 98.1 || good.bytes != 1 ||
		good.furthest == "" {
		t.Errorf("got %+v", good)
	}
	// 40 draws from two equal classes: 1 - √(2/4/(π·40)) is 93.7.
	if good.ideal.Bytes < 92 || good.ideal.Bytes > 95 || !good.reached() {
		t.Errorf("an ideal of %v", good.ideal)
	}
	bad, err := trial.judge(allocated(9000, 1000))
	if err != nil || bad.reached() {
		t.Errorf("an overlap of %v with an ideal of %v is enough: %v", bad.overlap, bad.ideal, err)
	}
	table := allocTables([]allocResult{good, bad})[0]
	if table.Marker != "alloc" || len(table.Rows) != 2 || len(table.Rows[0]) != len(table.Header) ||
		table.Rows[1][6] != "MISSED" {
		t.Errorf("table %+v", table)
	}
	good.buffers = "1531k"
	tables := allocTables([]allocResult{good, bad})
	if len(tables) != 2 || tables[1].Marker != "alloc-buffers" || len(tables[1].Rows) != 1 ||
		len(tables[1].Rows[0]) != len(tables[1].Header) {
		t.Errorf("tables %+v", tables)
	}
	nothing := allocated(5000, 5000)
	nothing.Profile.Sample = nothing.Profile.Sample[:1]
	if _, err := trial.judge(nothing); err == nil || !strings.Contains(err.Error(), "what it printed") {
		t.Errorf("without samples: %v", err)
	}
}
