package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmprof-agent/vmprof-agent/agent/host/socketfile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/listener"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/cmd/vmprof-agent/cli"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// scripted is a profiler that closes one window as soon as it is followed.
type scripted struct {
	observed chan struct{} // closed after that window
	failure  error         // of Run; nil: it runs until the end
	stats    profile.Stats
}

func (s *scripted) Run(ctx context.Context) error {
	if s.failure != nil {
		return s.failure
	}
	<-ctx.Done()
	return nil
}

func (s *scripted) Follow(ctx context.Context, _ time.Duration, observe func(*profile.Profile)) error {
	observe(window())
	close(s.observed)
	<-ctx.Done()
	return ctx.Err()
}

func (s *scripted) Collect(context.Context, time.Duration, []int) (*profile.Profile, error) {
	return window(), nil
}
func (s *scripted) Counts() (profile.Counts, error) {
	return profile.Counts{Attempted: 12, Delivered: 12, Folded: 12}, nil
}
func (s *scripted) RequestFailed() {}

func (s *scripted) Stats() profile.Stats { return s.stats }

var (
	ofTime        = profile.Stats{Ready: true, Ticks: true, Time: true}
	ofAllocations = profile.Stats{Ready: true,
		Events: &profile.EventStats{Kinds: []profile.EventKind{profile.Allocations}}}
)

func window() *profile.Profile {
	tree := new(cct.Tree[symbol.Symbol])
	tree.Add([]symbol.Symbol{symbol.Intern(symbol.Frame{Function: "com.acme.Main.hot"})}, 64)
	return &profile.Profile{
		Duration: 10 * time.Second, Period: time.Second / 128,
		Processes: []*profile.Process{{PID: 1, Comm: "java", Service: "shop", Runtime: "hotspot",
			Threads: []*profile.Thread{{TID: 1, Tree: tree}},
			Events: []*profile.Events{{Kind: profile.Allocations, Rows: []profile.EventRow{
				{EventLabels: profile.EventLabels{Class: "com.acme.Cart"}, Events: 1,
					Values: [profile.MaxEventValues]float64{2, 640}}}}}}},
	}
}

// A window goes to the metrics and to the pages, and everything ends in order.
func TestServe(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", "/dev/null")
	for _, tt := range []struct {
		args  []string
		stats profile.Stats
		want  map[string]string // text by path
		lacks map[string]string // likewise
	}{
		{nil, ofTime, map[string]string{
			"/plain": "java",
			"/metrics": `vmprof_cpu_seconds_total{method="com.acme.Main.hot",runtime="hotspot",` +
				`service="shop"} 0.5`,
			"/ui/top":                 "com.acme.Main.hot",
			"/profiles/cpu?seconds=1": "\x1f\x8b",
			"/-/ready":                "sampling",
		}, map[string]string{"/metrics": "vmprof_allocated_bytes_total", "/plain": "profiles/alloc"}},
		{[]string{"--metrics-max-methods=0"}, ofTime, map[string]string{
			"/metrics": `vmprof_cpu_seconds_total{method="(other)",runtime="hotspot",service="shop"} 0.5`,
		}, nil},
		{[]string{"--metrics-max-services=0"}, ofTime, map[string]string{
			"/metrics": `vmprof_cpu_seconds_total{method="(other)",runtime="hotspot",service="(other)"} 0.5`,
		}, nil},
		{[]string{"--rule", `hot: sum(cpu) by service where stack.anyMatches("hot$")`, "--rule",
			"cold: share(samples) where command == 'x'"}, ofTime, map[string]string{
			"/metrics": `vmprof_rule_failures_total{cause="busy",rule="hot"} 0`,
		}, nil},
		{[]string{"-e", "alloc"}, ofAllocations, map[string]string{
			"/plain":                    "profiles/alloc",
			"/metrics":                  `vmprof_allocated_bytes_total{service="shop"} 640`,
			"/ui/top":                   "com.acme.Cart",
			"/profiles/alloc?seconds=1": "\x1f\x8b",
			"/-/ready":                  "sampling",
		}, map[string]string{"/metrics": "vmprof_cpu_seconds_total", "/plain": "profiles/cpu"}},
	} {
		o, err := parseServe(tt.args, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		ln, err := listener.Listen("127.0.0.1:0", "", false, socketfile.Access{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		p := &scripted{observed: make(chan struct{}), stats: tt.stats}
		done := make(chan error)
		go func() { done <- o.run(ctx, p, ln, time.Hour, slog.New(slog.DiscardHandler)) }()
		<-p.observed
		for path, want := range tt.want {
			if status, body := fetch(t, ln, path); status != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("serve %q: %s is %d without %q:\n%s", tt.args, path, status, want, body)
			}
		}
		for path, not := range tt.lacks {
			if _, body := fetch(t, ln, path); strings.Contains(body, not) {
				t.Errorf("serve %q: %s has %q:\n%s", tt.args, path, not, body)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("serve %q: %v", tt.args, err)
		}
	}
}

// fetch returns what is answered on ln.
func fetch(t *testing.T, ln net.Listener, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + ln.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// What it says at the beginning is what it does.
func TestServeDoes(t *testing.T) {
	for args, want := range map[string]string{
		"":                    "sampling at 99 Hz",
		"--clock=tick":        "sampling at 99 Hz by the kernel's tick",
		"-e lock,alloc":       "recording alloc, lock",
		"-e cpu,page-faults":  "sampling at 99 Hz, recording page-faults",
		"-e calls,safepoint ": "sampling at 99 Hz, recording safepoint",
	} {
		o, err := parseServe(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.does(99); got != want {
			t.Errorf("serve %s: %q, want %q", args, got, want)
		}
	}
}

// An agent that fails ends the server, and its error is the verb's.
func TestServeFails(t *testing.T) {
	ln, err := listener.Listen("127.0.0.1:0", "", false, socketfile.Access{})
	if err != nil {
		t.Fatal(err)
	}
	failure := errors.New("a CPU caught fire")
	p := &scripted{observed: make(chan struct{}), failure: failure}
	if err := new(serveOptions).run(t.Context(), p, ln, time.Hour, slog.New(slog.DiscardHandler)); !errors.Is(err,
		failure) {
		t.Errorf("%v, want %v", err, failure)
	}
}

// What is wrong with the command line is said before anything is loaded, so also without
// privileges.
func TestServeErrors(t *testing.T) {
	for _, tt := range []struct {
		args  []string
		want  string
		usage bool
	}{
		{[]string{"x"}, "unexpected argument x", true},
		{[]string{"--rule", "json: sum(cpu) where stack"}, "expression of type bool", true},
		{[]string{"--window-exec-user", "nobody"}, "need --window-exec=PROGRAM", true},
		{[]string{"--window-exec=/bin/true", "--window-exec-timeout=11s"}, "up to 10s", true},
		{[]string{"--window-exec=/bin/true", "--window-exec-memory=1MB"}, "at least 64MB", true},
		{[]string{"--listen=127.0.0.1:0", "--window-exec=rule"}, "not an absolute path", false},
		{[]string{"--rule", "json: sum(alloc_space)"}, "not recorded: use one of samples, cpu", true},
		{[]string{"-F", "0"}, "at least 1 Hz", true},
		{[]string{"--metrics-max-methods=-1"}, "cannot be negative", true},
		{[]string{"-e", "allocs"}, "choose one or several of cpu, calls, alloc", true},
		{[]string{"-e", "value"}, "needs a --probe", true},
		{[]string{"--probe", "usdt:hotspot:gc__begin=arg1"}, "--probe needs -e value", true},
		{[]string{"--listen", "0.0.0.0:0"}, "--web.allow-insecure", false},
		{[]string{"--listen", "nonsense"}, "HOST:PORT", false},
		{[]string{"--web.listen-address", "nonsense"}, "HOST:PORT", false},
		{[]string{"--web.socket-group=0"}, "needs --web.listen-address=unix:PATH", true},
		{[]string{"--listen=unix:/nonexistent/a/b", "--web.socket-mode=rw"}, "not a mode such as 0660", true},
		{[]string{"--listen=unix:/nonexistent/a/b", "--web.socket-owner=nobody at all"}, "no such user or group", true},
		{[]string{"--listen=unix:/nonexistent/a/b"}, "open directory /nonexistent: no such file", false},
		{[]string{"--listen=:1", "--web.listen-address=:2"}, "give one of them", true},
		{[]string{"--web.config.file", "/nonexistent/web.yml"}, "--web.config.file=/nonexistent/web.yml", false},
	} {
		err := Run(t.Context(), tt.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || cli.IsMisuse(err) != tt.usage {
			t.Errorf("serve %q = %v, want an error with %q", tt.args, err, tt.want)
		}
	}
}

func TestServeHelp(t *testing.T) {
	var stderr bytes.Buffer
	if err := Run(t.Context(), []string{"--help"}, io.Discard, &stderr); !errors.Is(err, pflag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"Usage: vmprof-agent serve", "/metrics", "/healthz", "--web.listen-address",
		"127.0.0.1:9464", "--web.config.file", "--metrics-max-methods"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the help does not mention %s:\n%s", want, &stderr)
		}
	}
}

// What cannot have slow calls is refused.
func TestSlowFlag(t *testing.T) {
	for args, want := range map[string]string{
		"-e wall --slow=a.B.c -p 1":             "",
		"-e wall --slow=a.B.c -p 1 --budget=5%": "",
		"-e wall --slow=a.B.c":                  "--slow needs the JVMs",
		"-e cpu --slow=a.B.c -p 1":              "--slow needs -e wall",
		"-e wall,calls --slow=a.B.c -p 1":       "remove -e calls",
		"-e wall --slow=a -p 1":                 "want class.method",
	} {
		_, err := parseServe(strings.Fields(args), io.Discard)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !cli.IsMisuse(err)) {
			t.Errorf("serve %s: %v, want %q", args, err, want)
		}
	}
}

// Flags that can have no effect together are an error.
func TestFlagsTogether(t *testing.T) {
	if _, err := parseServe([]string{"-e", "cpu,calls", "--engine=hotspot", "--stride=7"}, io.Discard); err == nil {
		t.Error("serve takes --engine=hotspot with --stride")
	}
}
