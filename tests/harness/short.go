package harness

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// TestShort runs a command with these arguments, as a test of its short form. The test's log has
// all that the command prints if tests are verbose. Otherwise a command that fails leaves there
// what Misses finds.
func TestShort(t *testing.T, run func(ctx context.Context, args []string, out io.Writer) error, args ...string) {
	t.Helper()
	var printed strings.Builder
	out := io.Writer(&printed)
	if testing.Verbose() {
		out = io.MultiWriter(&printed, t.Output())
	}
	if err := run(t.Context(), args, out); err != nil {
		t.Errorf("%v\n%s", err, Misses(printed.String()))
	}
}

// Misses returns the lines of printed tables that miss their aim, each with the first line of its
// table and with the text that explains it. Tables are paragraphs; an explanation follows its table
// in the same paragraph and is indented, or ends in a colon.
func Misses(printed string) string {
	var missed strings.Builder
	for paragraph := range strings.SplitSeq(printed, "\n\n") {
		if !strings.Contains(paragraph, report.Verdict(false)) {
			continue
		}
		lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
		missed.WriteString(lines[0] + "\n")
		for _, line := range lines[1:] {
			if strings.Contains(line, report.Verdict(false)) || strings.HasPrefix(line, " ") ||
				strings.HasSuffix(line, ":") {
				missed.WriteString(line + "\n")
			}
		}
	}
	return missed.String()
}
