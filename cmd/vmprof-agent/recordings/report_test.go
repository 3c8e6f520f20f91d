package recordings

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// storedProfile writes a profile in which run calls hot 9 times of 10, and cold once.
func storedProfile(t *testing.T) string {
	t.Helper()
	run := symbol.Intern(symbol.Frame{Function: "com.acme.Main.run"})
	tree := new(cct.Tree[symbol.Symbol])
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.hot"}), run}, 9)
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.cold"}), run}, 1)
	p := &profile.Profile{
		Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{TID: 1, Tree: tree}}}},
		Counts:    profile.Counts{Folded: 10, Dropped: map[string]uint64{"ring_full": 2}},
	}
	path := filepath.Join(t.TempDir(), "cpu.pb.gz")
	if err := sink.Write(path, nil, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReport(t *testing.T) {
	path := storedProfile(t)
	for _, test := range []struct {
		args         []string
		want, absent []string
	}{
		{nil, []string{"90.0%", "com.acme.Main.hot", "com.acme.Main.cold", "samples: 10, 2 lost (ring_full 2)"}, nil},
		{[]string{"-n", "1"}, []string{"com.acme.Main.hot", "2 more methods"}, []string{"com.acme.Main.cold"}},
		{[]string{"--view=tree"}, []string{" +-com.acme.Main.hot s:9(90.0%) d:9(90.0%)", "com.acme.Main.cold",
			"2 lost"}, nil},
		{[]string{"--view=tree", "--min-share=20"}, []string{"com.acme.Main.hot"}, []string{"com.acme.Main.cold"}},
		{[]string{"--width=0"}, []string{"com.acme.Main.hot"}, nil},
	} {
		var stdout, stderr bytes.Buffer
		if err := Report(context.Background(), append(test.args, path), &stdout, &stderr); err != nil {
			t.Errorf("report %q: %v", test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("report %q has no %q:\n%s", test.args, want, &stdout)
			}
		}
		for _, absent := range test.absent {
			if strings.Contains(stdout.String(), absent) {
				t.Errorf("report %q has %q:\n%s", test.args, absent, &stdout)
			}
		}
	}
}

func TestReportCalls(t *testing.T) {
	path := storedCalls(t, 90, 10)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"Hot methods of engine page", "90.0%    90    0.0%     0  com.acme.Hot.go"}},
		{[]string{"--view=edges"}, []string{"[s] com.acme.Main.run:7 -> com.acme.Hot.go", ">  90.0%  com.acme.Hot.go",
			"a candidate for guarded"}},
		{[]string{"--view=edges", "-n", "1"}, []string{"1 more edge\n"}},
		{[]string{"--view=layers"}, []string{"90.00%    0.00%   10.00%    0.00%    0.00%   100  [unknown] (pid 1), " +
			"page"}},
		{[]string{"--view=layers", "--app=com.acme.Main", "--app=java."},
			[]string{"10.00%    0.00%   90.00%", "com.acme.Main"}},
	} {
		var stdout, stderr bytes.Buffer
		if err := Report(context.Background(), append(test.args, path), &stdout, &stderr); err != nil {
			t.Errorf("report %q: %v", test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("report %q has no %q:\n%s", test.args, want, &stdout)
			}
		}
	}
}

// storedEvents writes a profile of 30 events of one kind, which are 6000000 of each value.
func storedEvents(t *testing.T, kind profile.EventKind) string {
	t.Helper()
	tree := new(cct.Tree[symbol.Symbol])
	e := &profile.Events{Kind: kind, Tree: tree, Rows: []profile.EventRow{{
		Context:     tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.hot"})}, 30),
		EventLabels: profile.EventLabels{Class: "byte[]", What: "spin", Probe: "p", Value: "8-15"},
		Events:      30, Values: [profile.MaxEventValues]float64{6e6, 6e6, 6e6},
	}}}
	if kind == profile.OffCPU || kind == profile.Wall {
		e.Rows[0].Values[profile.DrawSquares] = 6e6 * 6e6 / 30
	}
	p := &profile.Profile{
		Processes:   []*profile.Process{{PID: 1, Comm: "java", Events: []*profile.Events{e}}},
		EventCounts: profile.EventCounts{Folded: 30, Dropped: map[string]uint64{"ring_full": 2}},
	}
	path := filepath.Join(t.TempDir(), kind.String()+".pb.gz")
	if err := sink.Write(path, nil, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file of events is shown by its own view, by name or not, and its tree is in the unit of the
// events.
func TestReportEvents(t *testing.T) {
	for view, test := range map[string]struct {
		kind profile.EventKind
		want string // in the view
		tree string
	}{
		"allocs": {profile.Allocations, "Allocations: 6.0MB (±35.8%), 6000000 objects, from 30 events",
			"6.0MB allocated"},
		"locks":      {profile.Locks, "Locks: 6.00ms (±35.8%) of delay in 6000000 contentions", "6.00ms delay"},
		"values":     {profile.Values, "6000000 executions, mean 1", "6000000 executions"},
		"safepoints": {profile.Pauses, "java (pid 1): stopped for 6.00ms in 6000000 pauses", "6.00ms stopped"},
		"faults":     {profile.Faults, "Page faults: 6000000 (±35.8%) first touches", "6000000 faults"},
		"barriers":   {profile.Barriers, "Write barriers: 6000000 (±35.8%) cards made dirty", "6000000 dirty_cards"},
		"exceptions": {profile.Exceptions, "Exceptions: 6000000 (±35.8%) created with a stack trace",
			"6000000 exceptions"},
		"offcpu": {profile.OffCPU, "Off-CPU time: 6.00ms (±35.8%) of all threads together, from 30 events",
			"6.00ms offcpu"},
		"wall": {profile.Wall, "Wall time: 6.00ms (±35.8%) of all threads together, from 30 events",
			"6.00ms wall"},
		"cpi": {profile.Cycles, "6000000 cycles, 6000000 instructions, CPI 1.00", "6000000 cycles"},
	} {
		path := storedEvents(t, test.kind)
		for _, args := range [][]string{{path}, {"--view=" + view, path}, {"--view=tree", path}} {
			var stdout, stderr bytes.Buffer
			if err := Report(context.Background(), args, &stdout, &stderr); err != nil {
				t.Errorf("report %q: %v", args, err)
			}
			want := test.want
			if args[0] == "--view=tree" {
				want = "Calling contexts with 0.3% or more of " + test.tree
			}
			for _, want := range []string{want, "events: 30 " + test.kind.String() + ", 2 lost (ring_full 2)\n"} {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("report %q has no %q:\n%s", args, want, &stdout)
				}
			}
		}
	}
}

func TestReportWindow(t *testing.T) {
	path := storedWindows(t)
	for _, test := range []struct{ flag, want string }{
		{"--width=79", " 70.0%      14   70.0%      14  com.acme.Main.hot"},
		{"--window=2", " 50.0%       5   50.0%       5  com.acme.Main.hot"}, // the former name
		{"--nth=2", " 50.0%       5   50.0%       5  com.acme.Main.hot"},
	} {
		var stdout, stderr bytes.Buffer
		if err := Report(context.Background(), []string{test.flag, path}, &stdout, &stderr); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stdout.String(), test.want) {
			t.Errorf("report %s has no %q:\n%s", test.flag, test.want, &stdout)
		}
	}
}

func TestReportContexts(t *testing.T) {
	tree := new(cct.Tree[symbol.Symbol])
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.hot"})}, 3)
	p := &profile.Profile{Processes: []*profile.Process{{
		PID: 1, Comm: "java", Threads: []*profile.Thread{{TID: 1, Context: profile.Ambiguous, Tree: tree}},
		Contexts: &profile.Contexts{Mode: profile.ContextChain, Walked: 1, Linked: 3, Ambiguous: 3, Nodes: 8, Shared: 2,
			Methods: 5},
	}}}
	path := filepath.Join(t.TempDir(), "chain.pb.gz")
	if err := sink.Write(path, nil, p, sink.ContentOf(p)); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if err := Report(context.Background(), []string{"--view=contexts", path}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 (25.0%)", "1.6  java (pid 1)", "75.0%", "[a] com.acme.Main.hot",
		"several fit and share the weight"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
}

// copies stores recordings side by side.
func copies(t *testing.T, paths ...string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("%d.pb.gz", i)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// A directory of windows is one profile.
func TestReportDirectory(t *testing.T) {
	one, allocations := storedProfile(t), storedEvents(t, profile.Allocations)
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{copies(t, one)}, []string{"90.0%       9", "samples: 10, 2 lost"}},
		{[]string{copies(t, one, one, one)}, []string{"90.0%      27", "samples: 30, 6 lost (ring_full 6)",
			"3 recordings of /"}},
		{[]string{copies(t, allocations, allocations)}, []string{"Allocations", "2 recordings of /"}},
		{[]string{"--view=tree", copies(t, one, one)}, []string{"com.acme.Main.hot s:18(90.0%)"}},
		{[]string{"--nth=2", copies(t, one, one)}, []string{"90.0%       9", "samples: 10, 2 lost"}},
	} {
		var stdout, stderr bytes.Buffer
		if err := Report(t.Context(), test.args, &stdout, &stderr); err != nil {
			t.Errorf("report %q: %v", test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("report %q has no %q:\n%s", test.args, want, &stdout)
			}
		}
	}
}

func TestReportErrors(t *testing.T) {
	path := storedProfile(t)
	mixed := copies(t, path, storedEvents(t, profile.Allocations))
	text := filepath.Join(t.TempDir(), "cpu.txt")
	if err := os.WriteFile(text, []byte("Hot methods\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "name one file"},
		{[]string{path, path}, "name one file"},
		{[]string{"--view=flame", path},
			`unknown view "flame": choose methods, threads, tree, contexts, edges, layers, versions, timeline, slow; or, for events, allocs, locks, values, safepoints, faults, cpi, offcpu, wall, barriers, exceptions`},
		{[]string{"--view=contexts", path}, "record one with vmprof-agent record --context=chain"},
		{[]string{"--nth=1", path}, "the profile has no windows: record some with vmprof-agent record --window=10s"},
		{[]string{"--nth=0", path}, "--nth needs the number of a window"},
		{[]string{"--nth=3", storedWindows(t)}, "there is no window 3"},
		{[]string{"--view=edges", path}, "record some with vmprof-agent record -e calls"},
		{[]string{"--view=layers", path}, "record some with vmprof-agent record -e calls"},
		{[]string{"--view=", path}, `unknown view ""`},
		{[]string{"--view=allocs", path}, "record some with vmprof-agent record -e alloc"},
		{[]string{"--view=locks", storedEvents(t, profile.Allocations)},
			"the profile has no locks: record some with vmprof-agent record -e lock"},
		{[]string{"--app=com.acme.", path}, "--app is for --view=layers"},
		{[]string{"--view=layers", "--app=(", path}, "neither a prefix nor a regular expression"},
		{[]string{"--view=layers", "--app=", path}, "needs a prefix"},
		{[]string{"--min-share=101", path}, "from 0 to 100"},
		{[]string{"--min-share=NaN", path}, "from 0 to 100"},
		{[]string{"-n", "-1", path}, "at least 0"},
		{[]string{"--no-such-flag", path}, "no-such-flag"},
		{[]string{"-p", "7", path}, "-p PID is for --view=timeline"},
		{[]string{"--view=timeline", "-p", "0", path}, "-p needs the number of a process"},
		{[]string{"--per=", path}, "--per needs the method"},
		{[]string{filepath.Join(t.TempDir(), "missing.pb.gz")}, "no such file"},
		{[]string{text}, "not a pprof profile"},
		{[]string{t.TempDir()}, "has no recordings: files whose names end in .pb.gz"},
		{[]string{"--nth=3", mixed}, "has 2 recordings, no window 3"},
		{[]string{mixed}, "name one of the files"},
	} {
		var stdout, stderr bytes.Buffer
		err := Report(context.Background(), test.args, &stdout, &stderr)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("report %q = %v, want an error with %q", test.args, err, test.want)
		}
		if stdout.Len() > 0 {
			t.Errorf("report %q fails but prints %q", test.args, &stdout)
		}
	}
}

func TestReportHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if err := Report(context.Background(), []string{"--help"}, &stdout, &stderr); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	help := stdout.String() + stderr.String()
	for _, want := range []string{"Usage: vmprof-agent report", "--view", "--min-share", "--number", "--width", "--app",
		"--nth", "contexts", "edges", "layers", "allocs", "locks", "values", "faults", "cpi", "safepoints",
		"-tagleaf=class"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help does not mention %s:\n%s", want, help)
		}
	}
}
