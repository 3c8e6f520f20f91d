package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/record"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/recordings"
)

// completionOf is the script for a shell.
func completionOf(t *testing.T, shell string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"completion", shell}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("%s: %d, %s", shell, code, &stderr)
	}
	return stdout.String()
}

// What bash offers after some words, of which the last one is being typed.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	script := filepath.Join(directory, "completion")
	if err := os.WriteFile(script, []byte(completionOf(t, "bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "out.pb.gz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		words []string
		want  string
	}{
		{[]string{"re"}, "record report"},
		{[]string{"he"}, "help"},
		{[]string{"keep"}, ""}, // hidden
		{[]string{"record", "--dur"}, "--duration"},
		{[]string{"record", "--mon"}, "--monitor-enters"},
		{[]string{"serve", "--lis"}, ""}, // the former name
		{[]string{"serve", "--web.l"}, "--web.listen-address"},
		{[]string{"record", "-e", "al"}, "alloc"},
		{[]string{"record", "-e", "cpu,lo"}, "cpu,lock"},
		{[]string{"report", "--view", "tre"}, "tree"},
		{[]string{"report", "--view", "=", "tre"}, "tree"},
		{[]string{"report", "--view", "="}, strings.Join(slices.Sorted(maps.Keys(recordings.Views)), " ")},
		{[]string{"report", "ou"}, "out.pb.gz"},
		{[]string{"report", "--view", "tree", "ou"}, "out.pb.gz"},
		{[]string{"compare", "--by", "cl"}, "class"},
		{[]string{"record", "-d", "1"}, ""},
		{[]string{"record", "-o", "ou"}, "out.pb.gz"},
		{[]string{"serve", "--history-dir", "ou"}, "out.pb.gz"},
		{[]string{"record", "--", "ou"}, "out.pb.gz"},
		{[]string{"completion", ""}, "bash fish zsh"},
		{[]string{"help", "rec"}, "record"},
		{[]string{"doctor", "--"}, "--json --all --help"},
	} {
		cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c",
			`source "$1"; shift; COMP_WORDS=(vmprof-agent "$@"); COMP_CWORD=$#; _vmprof_agent; echo "${COMPREPLY[*]}"`,
			"bash", script)
		cmd.Args = append(cmd.Args, test.words...)
		cmd.Dir = directory
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != test.want {
			t.Errorf("%q: %q, %v, want %q", test.words, got, err, test.want)
		}
	}
}

// Each shell knows all commands and all flags.
func TestCompletions(t *testing.T) {
	for _, shell := range shells {
		script := completionOf(t, shell)
		for _, d := range definitions() {
			if !strings.Contains(script, d.Name) {
				t.Errorf("%s: no %s", shell, d.Name)
			}
			for _, f := range flagsShown(d) {
				if name := f.Name; !strings.Contains(script, "--"+name) && !strings.Contains(script, "-l "+name+" ") {
					t.Errorf("%s: %s has no --%s", shell, d.Name, name)
				}
			}
		}
		for _, not := range []string{record.GateVerb, "--listen ", "'*--listen"} {
			if strings.Contains(script, not) {
				t.Errorf("%s: has %q", shell, not)
			}
		}
	}
	for _, args := range []string{"completion", "completion tcsh", "completion bash zsh"} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stderr, &stderr); code != 2 ||
			!strings.Contains(stderr.String(), "bash, zsh or fish") {
			t.Errorf("%s: %d, %s", args, code, &stderr)
		}
	}
}

// A flag whose values are words has those that its verb takes.
func TestCompletedValues(t *testing.T) {
	for _, d := range definitions() {
		for _, f := range flagsShown(d) {
			kind, words := valueOf(d.Name, f)
			if kind != oneOf {
				continue
			}
			for _, word := range words {
				args := []string{d.Name, "--" + f.Name + "=" + word}
				switch d.Name {
				case "report":
					args = append(args, "/nowhere.pb.gz")
				case "compare":
					args = append(args, "/nowhere.pb.gz", "/nowhere.pb.gz")
				case "audit":
					args = append(args, "-p", "4194304", "--method", "a.B.c")
				default:
					continue // record and serve would begin
				}
				var stderr bytes.Buffer
				if run(t.Context(), args, &stderr, &stderr); strings.Contains(stderr.String(), word+"\"") ||
					strings.Contains(stderr.String(), "choose") {
					t.Errorf("%q: %s", args, &stderr)
				}
			}
		}
	}
	if !slices.Equal(shells, slices.Sorted(slices.Values(shells))) {
		t.Errorf("%q are not in order", shells)
	}
}

// The manual page has all commands and flags, and no line that roff takes for a request.
func TestManPage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"man"}, &stdout, &stderr); code != 0 {
		t.Fatalf("%d, %s", code, &stderr)
	}
	page := stdout.String()
	for _, d := range definitions() {
		if !strings.Contains(page, "\n.SH "+strings.ToUpper(d.Name)+"\n") {
			t.Errorf("no section on %s", d.Name)
		}
		for _, group := range append([]string{""}, cli.Groups...) {
			for _, f := range cli.FlagsOf(d.Flags, group) {
				if !strings.Contains(page, strings.ReplaceAll("--"+f.Name, "-", `\-`)) {
					t.Errorf("%s: no --%s", d.Name, f.Name)
				}
			}
		}
	}
	for line := range strings.Lines(page) {
		request, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if (line[0] == '.' || line[0] == '\'') && !slices.Contains([]string{".TH", ".SH", ".SS", ".TP", ".br", ".nf",
			".fi"}, request) {
			t.Errorf("a request: %s", line)
		}
	}
	if got, want := roff("a\\b -c\n.d\n'e"), "a\\eb \\-c\n\\&.d\n\\&'e"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
