package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/version"
)

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string // begin with
	}{
		{"help", 0, "vmprof-agent profiles", ""},
		{"-h", 0, "vmprof-agent profiles", ""},
		{"--help", 0, "vmprof-agent profiles", ""},
		{"version", 0, "vmprof-agent " + version.Get().Version, ""},
		{"--version", 0, "vmprof-agent " + version.Get().Version, ""},
		{"version -h", 0, "", "Usage: vmprof-agent version"},
		{"doctor --help", 0, "", "Usage: vmprof-agent doctor"},
		{"", 2, "", "vmprof-agent: missing command\nRun 'vmprof-agent -h'"},
		{"recrod", 2, "", `vmprof-agent: unknown command "recrod"; did you mean "record"?`},
		{"tpo", 2, "", "vmprof-agent: unknown command \"tpo\"\n"},
		{"foo", 2, "", "vmprof-agent: unknown command \"foo\"\n"},
		{"repot", 2, "", `vmprof-agent: unknown command "repot"; did you mean "report"?`},
		{"tops", 2, "", `vmprof-agent: unknown command "tops"; did you mean "top"?`},
		{"dance", 2, "", "vmprof-agent: unknown command \"dance\"\n"},
		{"becom", 2, "", "vmprof-agent: unknown command \"becom\"\n"}, // hidden
		{"version --jsno", 2, "", "vmprof-agent version: unknown flag: --jsno\nRun 'vmprof-agent version -h'"},
		{"record --windwo=1", 2, "", "vmprof-agent record: unknown flag: --windwo; did you mean --window?\n"},
		{"report --where-to=1", 2, "", "vmprof-agent report: unknown flag: --where-to; did you mean --where?\n"},
		{"report --colour", 2, "", "vmprof-agent report: unknown flag: --colour\n"},
		{"report -y", 2, "", "vmprof-agent report: unknown shorthand flag: 'y' in -y\n"},
		{"version 1", 2, "", "vmprof-agent version: unexpected argument 1\n"},
		{"doctor all", 2, "", "vmprof-agent doctor: unexpected argument all\n"},
		{"record -F fast", 2, "", "vmprof-agent record: invalid argument \"fast\""},
		{"record -F 0", 2, "", "vmprof-agent record: -F needs"},
		{"report /nowhere/profile.pb.gz", 1, "", "vmprof-agent report: "},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), strings.Fields(tt.args), &stdout, &stderr); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, out := range []struct {
				name, got, want string
			}{{"stdout", stdout.String(), tt.stdout}, {"stderr", stderr.String(), tt.stderr}} {
				if !strings.HasPrefix(out.got, out.want) || out.want == "" && out.got != "" {
					t.Errorf("%s is %q, want %q", out.name, out.got, out.want)
				}
			}
		})
	}
}

func TestHelpNamesEveryVerb(t *testing.T) {
	var stdout bytes.Buffer
	if err := help(t.Context(), nil, &stdout, nil); err != nil {
		t.Fatal(err)
	}
	for _, v := range verbs() {
		shown := strings.Contains(stdout.String(), "\n  "+v.name+" ")
		if shown != (v.summary != "") {
			t.Errorf("%s: shown = %v", v.name, shown)
		}
	}
	for line := range strings.Lines(stdout.String()) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	var stdout bytes.Buffer
	if code := run(t.Context(), []string{"version", "--json"}, &stdout, &stdout); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stdout)
	}
	var got version.Info
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil || got != version.Get() {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestDoctor runs it on this machine: the exit code has to agree with what it says.
func TestDoctor(t *testing.T) {
	var asJSON, text, stderr bytes.Buffer
	code := run(t.Context(), []string{"doctor", "--json"}, &asJSON, &stderr)
	var report doctor.Report
	if err := json.Unmarshal(asJSON.Bytes(), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, &asJSON, &stderr)
	}
	if report.Ready != (code == 0) || len(report.Findings) == 0 {
		t.Errorf("exit code %d, ready = %v, %d findings", code, report.Ready, len(report.Findings))
	}
	if again := run(t.Context(), []string{"doctor"}, &text, &stderr); again != code {
		t.Errorf("exit code %d as text, %d as JSON", again, code)
	}
	verdict := "\nRecording works here"
	if code != 0 {
		verdict = "\nRecording does not work here"
	}
	if !strings.Contains(text.String(), verdict) || stderr.Len() > 0 {
		t.Errorf("does not say %q:\n%s%s", verdict, &text, &stderr)
	}
}

// Asking help for help shows the commands.
func TestHelpOfHelp(t *testing.T) {
	var want strings.Builder
	if err := help(t.Context(), nil, &want, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, arg := range []string{"help", "-h", "--help"} {
		var got strings.Builder
		if err := help(t.Context(), []string{arg}, &got, io.Discard); err != nil || got.String() != want.String() {
			t.Errorf("help %s: %v, %q", arg, err, got.String())
		}
	}
}
