package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// helpOf is what a verb prints for a flag such as --help.
func helpOf(t *testing.T, verb, flag string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{verb, flag}, &stdout, &stderr); code != 0 || stdout.Len() > 0 {
		t.Fatalf("%s %s: exit code %d, %q", verb, flag, code, &stdout)
	}
	return stderr.String()
}

// flagLine matches the line of a flag in the help.
var flagLine = regexp.MustCompile(`(?m)^  (-\w, |    )--([\w.-]+)\S*( \S+)? +\S`)

func flagsIn(help string) (names []string) {
	for _, m := range flagLine.FindAllStringSubmatch(help, -1) {
		names = append(names, m[2])
	}
	return names
}

func TestRecordHelp(t *testing.T) {
	help := helpOf(t, "record", "--help")
	const everyday = "pid duration event budget probe wakers output frequency clock window against per count slow " +
		"stats notes verbose log.format"
	if got := strings.Join(flagsIn(help), " "); got != everyday {
		t.Errorf("record --help has %s, want %s", got, everyday)
	}
	for _, want := range []string{"(default 30s", "(default cpu)", "(default 1%)", "(default vmprof.pb.gz)",
		"(default 99)", "--help-all"} {
		if !strings.Contains(help, want) {
			t.Errorf("record --help does not have %q:\n%s", want, help)
		}
	}
	all := helpOf(t, "record", "--help-all")
	for _, flag := range []string{
		"engine", "stride", "samples", "logical", "guest-socket", "context", "walk-every", "leave-unknown",
		"confirm-levels", "check-contexts",
		"exact", "exact-alloc", "monitor-enters", "breakpoints",
	} {
		if strings.Contains(help, "--"+flag+" ") || !strings.Contains(all, "--"+flag) {
			t.Errorf("--%s belongs into --help-all, and only there", flag)
		}
	}
	if before, after, ok := strings.Cut(all, "\nAdvanced: "); !ok || strings.Join(flagsIn(before), " ") != everyday ||
		len(flagsIn(after)) != 14 {
		t.Errorf("the advanced flags have no heading of their own:\n%s", all)
	}
}

// Each flag has one line, and no line is longer than a terminal is wide.
func TestHelpWidth(t *testing.T) {
	for _, v := range verbs() {
		if v.Summary == "" || v.Name == "help" {
			continue
		}
		for _, h := range []struct {
			flag  string
			width int
		}{{"--help", 80}, {"--help-all", 100}} {
			if h.flag == "--help-all" && !strings.Contains(helpOf(t, v.Name, "--help"), h.flag) {
				continue
			}
			for line := range strings.Lines(helpOf(t, v.Name, h.flag)) {
				if n := len([]rune(line)) - 1; n > h.width {
					t.Errorf("%s %s: %d columns: %s", v.Name, h.flag, n, line)
				}
			}
		}
	}
}

func TestHelpOfVerb(t *testing.T) {
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"help record", 0, "Usage: vmprof-agent record", ""},
		{"help version", 0, "Usage: vmprof-agent version", ""},
		{"help help", 0, "vmprof-agent profiles", ""},
		{"help recrod", 2, "", `vmprof-agent help: unknown command "recrod"; did you mean "record"?`},
		{"help become", 2, "", `vmprof-agent help: unknown command "become"`},
		{"help record now", 2, "", "vmprof-agent help: unexpected argument now"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(tt.args), &stdout, &stderr); code != tt.code {
			t.Errorf("%s: exit code %d, want %d", tt.args, code, tt.code)
		}
		if !strings.HasPrefix(stdout.String(), tt.stdout) || !strings.HasPrefix(stderr.String(), tt.stderr) {
			t.Errorf("%s: %q and %q", tt.args, &stdout, &stderr)
		}
	}
}

func TestUnexpectedArguments(t *testing.T) {
	for args, want := range map[string]string{
		"record 4711":        "unexpected argument 4711; to profile process 4711 use -p 4711",
		"record -d 10 4711":  "unexpected argument 4711; to profile process 4711 use -p 4711",
		"serve 4711":         "use -p 4711",
		"probes 4711":        "use -p 4711",
		"record java -jar x": "", // -j is no flag
		"record java Job":    "unexpected argument java; put a command after --, as in record -- java Job",
		"record 0":           "unexpected argument 0; put a command after --",
	} {
		var out, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &stderr); code != 2 ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, &stderr, want)
		}
	}
}
