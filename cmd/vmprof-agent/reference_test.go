package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

var update = flag.Bool("update", false, "rewrite docs/reference/flags.md")

// docs/reference/flags.md is what the verbs say of themselves.
func TestFlagsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Flags

<!-- Written by make reference; do not edit. -->

This page contains the complete help of each command, as ` + "`vmprof-agent record --help-all`" + ` prints it. ` + "`--help`" + ` omits the
advanced flags. A duration without a unit is in seconds.
`)
	for _, v := range verbs() {
		if v.Summary == "" || v.Name == "help" {
			continue
		}
		text := helpOf(t, v.Name, "--help")
		if strings.Contains(text, "--"+cli.HelpAll) {
			text = helpOf(t, v.Name, "--"+cli.HelpAll)
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", v.Name, strings.TrimSpace(text))
	}
	path := filepath.Join("..", "..", "docs", "reference", "flags.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("%s is out of date (%v): run make reference", path, err)
	}
}
