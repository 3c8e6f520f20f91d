package serve

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/recordings"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A dated is a profiler whose window was closed just now.
type dated struct{ scripted }

func (d *dated) Follow(ctx context.Context, _ time.Duration, observe func(*profile.Profile)) error {
	p := window()
	p.Start = time.Now().Add(-p.Duration)
	observe(p)
	close(d.observed)
	<-ctx.Done()
	return ctx.Err()
}

// What serve records is in the history: of the server, of its metrics, and of report once the
// server has ended.
func TestServeHistory(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "/dev/null")
	dir := filepath.Join(t.TempDir(), "history")
	o, err := parseServe([]string{"--history-dir", dir, "--history=2h", "--history-size=5MB"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	if o.past, err = o.history.open(log); err != nil {
		t.Fatal(err)
	}
	ln, err := listener.Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p := &dated{scripted{observed: make(chan struct{}), stats: ofTime}}
	done := make(chan error)
	go func() { done <- o.run(ctx, p, ln, time.Hour, log) }()
	<-p.observed
	wait.For(t, wait.Long, "the window is in the history", func() bool { return o.past.Stats().Windows > 0 })
	for path, want := range map[string]string{
		"/metrics":                            "vmprof_history_windows_total 1",
		"/profiles/cpu?from=10m":              "\x1f\x8b",
		"/profiles/cpu?from=10m&service=shop": "\x1f\x8b",
		"/profiles/alloc?from=10m":            "\x1f\x8b",
	} {
		if status, body := fetch(t, ln, path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s is %d without %q:\n%s", path, status, want, body)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := o.past.Close(); err != nil {
		t.Error(err)
	}
	for args, wants := range map[string][]string{
		"--from=10m": {"0.05       -", "100%", "shop", "com.acme.Main.hot",
			"from the history: "},
		"--from=10m --service=shop --view=tree": {"com.acme.Main.hot"},
		"--from=10m --view=allocs":              {"com.acme.Cart"},
		"--from=10m --where=service=='shop'":    {"com.acme.Main.hot"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append(strings.Fields("report "+args), "--history-dir", dir), &stdout, &stderr)
		if code != 0 {
			t.Fatalf("report %s: %d, %s", args, code, &stderr)
		}
		for _, want := range wants {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("report %s: no %q in\n%s", args, want, &stdout)
			}
		}
		if strings.Contains(args, "--where") && strings.Contains(stdout.String(), "Services from") {
			t.Errorf("report %s: sums of services, which are of all samples:\n%s", args, &stdout)
		}
		for line := range strings.Lines(stdout.String()) {
			if len(strings.TrimSuffix(line, "\n")) > 80 && !strings.Contains(line, "/") {
				t.Errorf("report %s: a line has %d columns: %s", args, len(line), line)
			}
		}
	}
}

func TestHistoryErrors(t *testing.T) {
	for _, tt := range []struct {
		args, want string
		usage      bool
	}{
		{"serve --history=1h", "need --history-dir", true},
		{"serve --history-dir=x --history=1s", "at least a minute", true},
		{"serve --history-dir=x --history-size=1kB", "at least 1 MB", true},
		{"serve --history-dir=x --history-size=big", "such as 200MB", true},
		{"serve --web.listen-address=127.0.0.1:0 --history-dir=/nonexistent/a", "directory /nonexistent does not exist",
			false},
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
		"serve": Run, "report": recordings.Report}[args[0]]}.Exit(ctx, args[1:], stdout, stderr)
}
