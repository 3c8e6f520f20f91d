package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// storedProfile writes a profile in which run calls hot 9 times of 10, and cold once.
func storedProfile(t *testing.T) string {
	t.Helper()
	run := symbolize.Intern(symbolize.Frame{Function: "com.acme.Main.run"})
	tree := new(cct.Tree[symbolize.Symbol])
	tree.Add([]symbolize.Symbol{symbolize.Intern(symbolize.Frame{Function: "com.acme.Main.hot"}), run}, 9)
	tree.Add([]symbolize.Symbol{symbolize.Intern(symbolize.Frame{Function: "com.acme.Main.cold"}), run}, 1)
	p := &agent.Profile{
		Processes: []*agent.Process{{PID: 1, Threads: []*agent.Thread{{TID: 1, Tree: tree}}}},
		Counts:    agent.Counts{Folded: 10, Dropped: map[string]uint64{"ring_full": 2}},
	}
	path := filepath.Join(t.TempDir(), "cpu.pb.gz")
	if err := sink.Write(path, nil, p); err != nil {
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
		{[]string{"--view=tree"}, []string{" +-com.acme.Main.hot s:9(90.0%) d:9(90.0%)", "com.acme.Main.cold", "2 lost"}, nil},
		{[]string{"--view=tree", "--min-share=20"}, []string{"com.acme.Main.hot"}, []string{"com.acme.Main.cold"}},
		{[]string{"--width=0"}, []string{"com.acme.Main.hot"}, nil},
	} {
		var stdout, stderr bytes.Buffer
		if err := report(context.Background(), append(test.args, path), &stdout, &stderr); err != nil {
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

func TestReportErrors(t *testing.T) {
	path := storedProfile(t)
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
		{[]string{"--view=flame", path}, `unknown view "flame": choose methods or tree`},
		{[]string{"--min-share=101", path}, "from 0 to 100"},
		{[]string{"--min-share=NaN", path}, "from 0 to 100"},
		{[]string{"-n", "-1", path}, "at least 0"},
		{[]string{"--no-such-flag", path}, "no-such-flag"},
		{[]string{filepath.Join(t.TempDir(), "missing.pb.gz")}, "no such file"},
		{[]string{text}, "not a pprof profile"},
		{[]string{t.TempDir()}, "is a directory"},
	} {
		var stdout, stderr bytes.Buffer
		err := report(context.Background(), test.args, &stdout, &stderr)
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
	if err := report(context.Background(), []string{"--help"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	help := stdout.String() + stderr.String()
	for _, want := range []string{"Usage: vmprof-agent report", "--view", "--min-share", "--number", "--width"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help does not tell of %s:\n%s", want, help)
		}
	}
}
