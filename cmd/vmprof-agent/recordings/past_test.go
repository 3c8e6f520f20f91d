package recordings

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
)

func TestPastErrors(t *testing.T) {
	empty, now := t.TempDir(), time.Now()
	for _, tt := range []struct {
		args, want string
		usage      bool
	}{
		{"report --to=03:10", "--to needs --from", true},
		{"report --service=shop x.pb.gz", "--service needs --from", true},
		{"report --from=noon", "want a time such as", true},
		{"report --from=" + now.Add(-2*time.Minute).Format("15:04") + " --to=" +
			now.Add(-3*time.Minute).Format("15:04"), "or in the future", true},
		{"report --from=03:10 x.pb.gz", "remove x.pb.gz", true},
		{"report --from=03:10 --view=versions", "does not keep code versions", true},
		{"report --from=03:10 --view=timeline", "does not keep what threads did", true},
		{"report --from=03:10 --view=slow", "does not keep slow calls", true},
		{"report --from=03:10 --nth=2", "is for files", true},
		{"report --from=03:10 --history-dir=/nonexistent/x", "--history-dir that serve runs with", false},
		{"report --from=03:10 --history-dir=" + empty, "it is empty", false},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tt.args), io.Discard, &stderr)
		if want := 1; tt.usage {
			want = 2
			if code != want {
				t.Errorf("%s: exit code %d, want %d", tt.args, code, want)
			}
		} else if code != want {
			t.Errorf("%s: exit code %d, want %d", tt.args, code, want)
		}
		if !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%s: %q, want %q", tt.args, &stderr, tt.want)
		}
	}
}

// run is the verb as the user calls it, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return cli.Verb{Name: args[0], Run: map[string]func(context.Context, []string, io.Writer, io.Writer) error{
		"report": Report, "compare": Compare}[args[0]]}.Exit(ctx, args[1:], stdout, stderr)
}
