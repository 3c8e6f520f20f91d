package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// storedCalls writes a profile of calls: run calls that many hot and cold methods, from the same site.
func storedCalls(t *testing.T, hot, cold float64) string {
	t.Helper()
	method := func(name string) symbolize.Symbol { return symbolize.Intern(symbolize.Frame{Function: name}) }
	g := new(profile.Graph)
	for name, weight := range map[string]float64{"com.acme.Hot.go": hot, "java.util.Cold.go": cold} {
		g.Add(profile.Edge{Caller: method("com.acme.Main.run"), Site: profile.Site{Line: 7, Offset: 3}, Callee: method(name)}, weight)
	}
	p := &profile.Profile{Processes: []*profile.Process{{PID: 1, Calls: []*profile.Calls{{Engine: "page", Graph: g}}}}}
	path := filepath.Join(t.TempDir(), "calls.pb.gz")
	if err := sink.Write(path, nil, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompare(t *testing.T) {
	timed, a, b, windows := storedProfile(t), storedCalls(t, 90, 10), storedCalls(t, 8, 2), storedWindows(t)
	allocations := storedEvents(t, profile.Allocations)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{timed, timed}, []string{"Comparison of samples by method", "overlap       100.00", "No share differs"}},
		{[]string{a, b}, []string{"Comparison of calls by method", "A: " + a[:10], "overlap        90.00", "-10.00%  com.acme.Hot.go"}},
		{[]string{"--by=edge", a, b}, []string{"by edge", "+10.00%  com.acme.Main.run:7 -> java.util.Cold.go"}},
		{[]string{"--by=edge", "--ignore-sites", a, b}, []string{"com.acme.Main.run -> java.util.Cold.go"}},
		{[]string{"--by=edge", "-n", "1", a, b}, []string{"1 smaller difference\n"}},
		{[]string{"--by=class", allocations, allocations}, []string{"Comparison of alloc_space by class", "5.7MB allocated, 1 class\n", "overlap       100.00"}},
		{[]string{"--by=context", "--sample-type=samples", timed, timed}, []string{"Comparison of samples by context"}},
		{[]string{"--engine=page", a, b}, []string{"overlap        90.00"}},
		{[]string{windows}, []string{"how well each of 2 windows predicts the next", "1, 2", "60.00"}},
		{[]string{"--ignore-sites", windows}, []string{"edges: the innermost calls;"}},
		{[]string{"--windows=2,1", windows}, []string{"A: " + windows[:10], "window 2, 10", "overlap        60.00", "+40.00%  com.acme.Main.hot"}},
		{[]string{"--windows=1,2", "--by=context", windows}, []string{"by context", "overlap        60.00"}},
	} {
		var stdout, stderr bytes.Buffer
		if err := compare(context.Background(), test.args, &stdout, &stderr); err != nil {
			t.Errorf("compare %q: %v", test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("compare %q has no %q:\n%s", test.args, want, &stdout)
			}
		}
	}
}

// storedWindows writes a profile of two windows, in which hot is 9 times of 10 and half the samples.
func storedWindows(t *testing.T) string {
	t.Helper()
	windows := sink.NewWindows(sink.Time)
	for i, hot := range []uint64{9, 5} {
		tree := new(cct.Tree[symbolize.Symbol])
		for name, weight := range map[string]uint64{"com.acme.Main.hot": hot, "com.acme.Main.cold": 10 - hot} {
			tree.Add([]symbolize.Symbol{symbolize.Intern(symbolize.Frame{Function: name})}, weight)
		}
		p := &profile.Profile{
			Start: time.Unix(1_700_000_000+10*int64(i), 0), Duration: 10 * time.Second,
			Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: tree}}}}, Counts: profile.Counts{Folded: 10},
		}
		if err := windows.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := windows.Profile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "windows.pb.gz")
	if err := sink.WriteStored(path, nil, stored); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompareErrors(t *testing.T) {
	timed, called, windows := storedProfile(t), storedCalls(t, 1, 1), storedWindows(t)
	for _, test := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{nil, "name two files, or one file with windows", true},
		{[]string{timed, timed, timed}, "name two files", true},
		{[]string{timed}, "name two files, or record with --window=10s", false},
		{[]string{"--windows=1,2", timed}, "the profile has no windows: record some with vmprof-agent record --window=10s", false},
		{[]string{"--windows=1,3", windows}, "there is no window 3: the profile has 2, from 1 to 2", false},
		{[]string{"--windows=1,2", windows, windows}, "--windows is for one file", true},
		{[]string{"--windows=1", windows}, "the numbers of two windows", true},
		{[]string{"--windows=1,2,3", windows}, "the numbers of two windows", true},
		{[]string{"--windows=0,1", windows}, "the numbers of two windows", true},
		{[]string{"--windows=one,two", windows}, "invalid argument", true},
		{[]string{"--by=edge", windows}, "--by is for two profiles", true},
		{[]string{"--ignore-sites", "--windows=1,2", windows}, "--ignore-sites is for --by=edge", true},
		{[]string{"--by=frame", timed, timed}, `cannot compare by "frame": choose method, edge, context or class`, true},
		{[]string{"--by=class", timed, timed}, "has no classes of objects", false},
		{[]string{"--ignore-sites", timed, timed}, "--ignore-sites is for --by=edge", true},
		{[]string{"-n", "-1", timed, timed}, "at least 0", true},
		{[]string{timed, filepath.Join(t.TempDir(), "missing.pb.gz")}, "no such file", false},
		{[]string{timed, called}, "record both in the same way", false},
		{[]string{"--engine=listener", called, called}, "has no calls of engine listener", false},
	} {
		var stdout, stderr bytes.Buffer
		err := compare(context.Background(), test.args, &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), test.want) || isUsage(err) != test.usage {
			t.Errorf("compare %q = %v, want an error with %q, usage %v", test.args, err, test.want, test.usage)
		}
		if stdout.Len() > 0 {
			t.Errorf("compare %q fails but prints %q", test.args, &stdout)
		}
	}
}

func TestCompareHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := compare(context.Background(), []string{"--help"}, &stdout, &stderr); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"Usage: vmprof-agent compare", "--by", "--sample-type", "--engine", "--ignore-sites", "--windows", "--number", "--width"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the help does not mention %s:\n%s", want, &stderr)
		}
	}
}
