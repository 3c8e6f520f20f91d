package faults

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var writesRows = []Row{
	{
		Fault: "code that could write into a target",
		Holds: "No source of the agent, its BPF programs and its tests has a call that writes another process's " +
			"memory or registers.",
		Test: testNoWrites,
	},
	{
		Fault: "the agent is killed while a function-entry probe is attached",
		Holds: "The kernel removes the probe: the semaphore is 0, the code equals the file, and the results of " +
			"the program do not change.",
		Elsewhere: []string{"tests.TestUSDTKilled"},
	},
	{
		Fault: "a process forks, stops or ends while its function-entry probe is attached",
		Holds: "Children share the probe until it is removed, and compute the same results as without it. A " +
			"stopped or ended process does not delay the agent.",
		Elsewhere: []string{"agent/collect/calls/usdt.TestLiveForks",
			"agent/collect/calls/usdt.TestLiveStoppedInWindow"},
	},
	{
		Fault: "two agents, or another tracer, at the same function-entry probe",
		Holds: "All of them see the calls, and the semaphore counts each of them. If another tracer attached " +
			"without the semaphore, the kernel refuses the agent. The agent reports that and does not sample the " +
			"process.",
		Elsewhere: []string{"agent/collect/calls/usdt.TestLiveTwoEngines",
			"agent/collect/calls/usdt.TestLiveOtherTracer"},
	},
	{
		Fault:     "a PHP that was started without USE_ZEND_DTRACE=1",
		Holds:     "The agent attaches no probe, and the recording contains the remedy.",
		Elsewhere: []string{"tests.TestUSDTPlain"},
	},
	{
		Fault: "a program that only looks like PHP",
		Holds: "The agent changes nothing in the program. It limits the length of the names from it and escapes " +
			"harmful characters.",
		Elsewhere: []string{"agent/collect/calls/usdt.TestLiveHostile", "agent/collect/calls/usdt.TestLiveUnreadable"},
	},
}

// writers are the system calls of Linux that write into another process.
var writers = []*regexp.Regexp{
	regexp.MustCompile(`(?i)process_?vm_?writev`),
	regexp.MustCompile(`bpf_probe_write_user`),
	regexp.MustCompile(`(?i)ptrace_?(poke|set)`),
	regexp.MustCompile(`(O_RDWR|O_WRONLY).*["/]mem"|["/]mem".*(O_RDWR|O_WRONLY)`),
}

func testNoWrites(t *testing.T) {
	const root = "../.."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".git"):
			return fs.SkipDir
		case d.IsDir() || d.Name() == "writes_test.go" || !slices.Contains([]string{".go", ".c", ".h"},
			filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for n, line := range bytes.Split(text, []byte("\n")) {
			for _, w := range writers {
				if w.Match(line) {
					t.Errorf("%s:%d: %s", path, n+1, line)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 500 {
		t.Errorf("only %d files were searched", files)
	}
	for _, bad := range []string{ // what it must find
		`unix.ProcessVMWritev(pid, local, remote, 0)`, `bpf_probe_write_user(to, from, 8);`,
		`os.OpenFile(filepath.Join(root, "4711", "mem"), os.O_RDWR, 0)`, `unix.PtracePokeData(pid, addr, data)`,
	} {
		if !slices.ContainsFunc(writers, func(w *regexp.Regexp) bool { return w.MatchString(bad) }) {
			t.Errorf("would not find %s", bad)
		}
	}
}
