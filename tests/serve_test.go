package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// serve starts the agent as a server on a free port, and returns its address.
func serve(t *testing.T, args ...string) (url string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, built.Path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	messages, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		rest, _ := io.ReadAll(messages)
		if err := command.Wait(); err != nil && command.ProcessState.ExitCode() != 0 {
			t.Errorf("an interrupted server ended with %v:\n%s", err, rest)
		}
	})
	return addressIn(t, bufio.NewReader(messages))
}

// addressIn returns the address that a server writes when it has started.
func addressIn(t *testing.T, messages *bufio.Reader) string {
	t.Helper()
	for all := ""; ; {
		line, err := messages.ReadString('\n')
		all += line
		if address := regexp.MustCompile(`http://[0-9.]+:[0-9]+`).FindString(line); address != "" {
			return address
		}
		if err != nil {
			t.Fatalf("the server does not say where it is: %q, %v", all, err)
		}
	}
}

// repeat calls run again and again until the function that it returns is called, which waits for
// the last one to end.
func repeat(t *testing.T, run func() error) (stop func()) {
	t.Helper()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				return
			default:
			}
			if err := run(); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func TestServe(t *testing.T) {
	t.Parallel() // most of it is the wait for a window
	guest := start(t, "Plain")
	url := serve(t, "-F", strconv.Itoa(frequency))

	t.Run("profile", func(t *testing.T) {
		status, body := profiler.Get(t, fmt.Sprintf("%s/profiles/cpu?seconds=1&pid=%d", url, guest.PID()))
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
		p, err := profile.ParseData([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		checkHeavy(t, p)
		for _, sample := range p.Sample {
			if pids := sample.NumLabel["pid"]; len(pids) != 1 || pids[0] != int64(guest.PID()) {
				t.Fatalf("asked for pid %d, got a sample of %v", guest.PID(), pids)
			}
		}
	})
	t.Run("go tool pprof", func(t *testing.T) {
		command := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", "-seconds=1", url+"/profiles/cpu")
		command.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		if got := finish(t, command); got.code != 0 || !strings.Contains(got.stdout, heavy) {
			t.Errorf("ended with %d:\n%s%s", got.code, got.stdout, got.stderr)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		hot := regexp.MustCompile(`(?m)^vmprof_.*method="` + regexp.QuoteMeta(heavy) + `"`)
		eventually(t, "the hot method has a metric", func() bool {
			_, body := profiler.Get(t, url+"/metrics")
			return hot.MatchString(body) && strings.Contains(body, "vmprof_build_info")
		})
	})
	t.Run("pages", func(t *testing.T) {
		for _, page := range []string{"/", "/plain", "/ui/", "/ui/flamegraph", "/ui/top", "/ui/peek?f=heavy"} {
			if status, body := profiler.Get(t, url+page); status != http.StatusOK {
				t.Errorf("%s: status %d: %.200s", page, status, body)
			}
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for _, query := range []string{"seconds=-1", "seconds=soon", "pid=none", "seconds=1e9"} {
			if status, _ := profiler.Get(t, url+"/profiles/cpu?"+query); status != http.StatusBadRequest {
				t.Errorf("%s: status %d", query, status)
			}
		}
	})
}

// A JVM that starts after the server did is profiled like any other.
func TestServeLateGuest(t *testing.T) {
	needs.Root(t, "sampling")
	needs.JDK(t)
	url := serve(t, "-F", strconv.Itoa(frequency))
	guest := start(t, "Plain")
	eventually(t, "the guest's methods are in a profile", func() bool {
		status, body := profiler.Get(t, fmt.Sprintf("%s/profiles/cpu?seconds=1&pid=%d", url, guest.PID()))
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
		p, err := profile.ParseData([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return stacks.Count(stacks.FromProfile(p), func(s stacks.Stack) bool { return s.Self(heavy) }) > 0
	})
}

func TestDoctor(t *testing.T) {
	guest := start(t, "Plain")
	got := mustSucceed(t, "doctor")
	for _, want := range []string{"kernel", "BTF", "CAP_BPF", strconv.Itoa(guest.PID())} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %s in\n%s", want, got.stdout)
		}
	}
	var report struct {
		Checks []struct{ Name, Status string } `json:"checks"`
	}
	if err := json.Unmarshal([]byte(mustSucceed(t, "doctor", "--json").stdout), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Checks) == 0 {
		t.Error("no checks")
	}
}
