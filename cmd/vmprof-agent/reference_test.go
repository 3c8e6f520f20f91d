package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		if v.summary == "" || v.name == "help" {
			continue
		}
		text := helpOf(t, v.name, "--help")
		if strings.Contains(text, "--"+helpAll) {
			text = helpOf(t, v.name, "--"+helpAll)
		}
		fmt.Fprintf(&b, "\n## %s\n\n```\n%s\n```\n", v.name, strings.TrimSpace(text))
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
