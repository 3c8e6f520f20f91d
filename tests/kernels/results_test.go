package main

import (
	"slices"
	"strings"
	"testing"
)

const goodRun = `== up 6.1.0-56-cloud-amd64 2.31
== run bpf_profile.o
tick: 24226 instructions verified
== exit bpf_profile.o 0
== run bpf
=== RUN   TestKernelLoad
=== RUN   TestKernelLoad/filtered
--- PASS: TestKernelLoad (0.52s)
    --- PASS: TestKernelLoad/filtered (0.52s)
--- PASS: TestKernelWalk (0.01s)
--- SKIP: TestKernelMulti (0.00s)
    load_test.go:12: uprobe.multi needs kernel 6.6
PASS
== exit bpf 0
== done
`

var wantSteps = []testPackage{{
	ImportPath: "github.com/vmprof-agent/vmprof-agent/bpf",
	HasTest:    true,
	Objects:    []string{"/src/bpf/profile_x86_bpfel.o"},
}}

func TestParseResults(t *testing.T) {
	r := parseResults(goodRun)
	if r.Release != "6.1.0-56-cloud-amd64" || r.Boot != "2.31" || !r.Done || len(r.Steps) != 2 {
		t.Fatalf("got %+v", r)
	}
	p := r.Steps[1]
	if want := []string{"TestKernelLoad", "TestKernelLoad/filtered", "TestKernelWalk"}; !slices.Equal(p.Passed, want) {
		t.Errorf("passed %v, want %v", p.Passed, want)
	}
	if want := []string{"TestKernelMulti"}; !slices.Equal(p.Skipped, want) {
		t.Errorf("skipped %v, want %v", p.Skipped, want)
	}
	if !strings.Contains(p.Output, "needs kernel 6.6") || strings.Contains(p.Output, "== exit") {
		t.Errorf("output is %q", p.Output)
	}
	if got, want := p.Eventful(), "--- SKIP: TestKernelMulti (0.00s)\n    load_test.go:12: uprobe.multi needs kernel "+
		"6.6\nPASS\n"; got != want {
		t.Errorf("eventful is %q, want %q", got, want)
	}
	if objects, problems := r.Check(wantSteps); objects != 1 || problems != nil {
		t.Errorf("%d objects, problems %q", objects, problems)
	}
}

// Every failure of a run is reported; none counts as success.
func TestCheckFindsProblems(t *testing.T) {
	with := func(was, is string) string { return strings.ReplaceAll(goodRun, was, is) }
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "the guest never came up"},
		{"cut before the end", with("== done\n", ""), "did not reach its end"},
		{"test crashed the guest", with("== exit bpf 0\n== done\n", ""), "bpf did not end"},
		{"test never started", "== up 6.1 2.3\n== done\n", "bpf was not run"},
		{"test failed", with("== exit bpf 0", "== exit bpf exit status 1"), "bpf: exit status 1"},
		{"test failed but exited well", with("--- PASS: TestKernelWalk", "--- FAIL: TestKernelWalk"),
			"failed: TestKernelWalk"},
		{"no tests", with("--- PASS", "--- SKIP"), "bpf passed no test"},
		{"object refused", with("== exit bpf_profile.o 0", "== exit bpf_profile.o permission denied"),
			"bpf_profile.o: permission denied"},
		{"object never tried", with("== run bpf_profile.o", "== run bpf_other.o"), "bpf_profile.o was not run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := parseResults(tt.text)
			_, problems := r.Check(wantSteps)
			if !strings.Contains(strings.Join(problems, "\n"), tt.want) {
				t.Errorf("problems are %q, want one with %q", problems, tt.want)
			}
		})
	}
}
