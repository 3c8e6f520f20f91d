package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
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
		shown := strings.Contains(stdout.String(), "\n  "+v.Name+" ")
		if shown != (v.Summary != "") {
			t.Errorf("%s: shown = %v", v.Name, shown)
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

// Verbs that log refuse formats that they do not know.
func TestLogFlag(t *testing.T) {
	for _, args := range []string{"record --log.format=xml", "serve --log.format=xml",
		"audit -p 1 --method a.B.c --log.format=xml"} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), io.Discard, &stderr); code != 2 ||
			!strings.Contains(stderr.String(), "choose text or json") {
			t.Errorf("%s: %d, %s", args, code, &stderr)
		}
	}
}

// What serve keeps by default, and as a unit, contains the same time yesterday of any time today.
func TestHistoryKeepsYesterday(t *testing.T) {
	defined := map[string]*cli.Definition{}
	for _, d := range definitions() {
		defined[d.Name] = d
	}
	ago, err := time.ParseDuration(defined["compare"].Flags.Lookup("baseline").DefValue)
	if err != nil {
		t.Fatal(err)
	}
	commands := []string{"serve --history-dir=x"}
	for _, unit := range []string{"vmprof-agent.service", "window-exec.conf"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "contrib", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		_, command, found := strings.Cut(string(text), "vmprof-agent serve ")
		if !found {
			t.Fatalf("%s has no serve", unit)
		}
		command, _, _ = strings.Cut(command, "\n")
		command, _, _ = strings.Cut(command, " --window-exec") // which need not be installed
		commands = append(commands, "serve "+command)
	}
	for _, command := range commands {
		flags := defined["serve"].Flags
		if err := flags.Parse(strings.Fields(command)[1:]); err != nil {
			t.Fatal(err)
		}
		kept, err := time.ParseDuration(flags.Lookup("history").Value.String())
		if want := ago + 24*time.Hour; err != nil || kept < want {
			t.Errorf("%s keeps %v (%v), want %v", command, kept, err, want)
		}
	}
}

// A word that is empty, as from a shell variable that is not set, never stands for the whole
// machine.
func TestTargetsEmpty(t *testing.T) {
	for _, args := range [][]string{
		{"record", "-p", ""}, {"record", "-p", " "}, {"record", "-p", "shop,"}, {"record", "--pid="},
		{"serve", "-p", ""}, {"probes", "-p", ""},
		{"audit", "--method", "a.B.c", "-p", ""}, {"audit", "--method", "a.B.c", "-p", "7", "-p", ""},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != 2 ||
			!strings.Contains(stderr.String(), "-p, --pid") {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}
