package tests

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// serveWith starts a server that the test ends itself, and returns its address.
func serveWith(t *testing.T, args ...string) (url string, command *exec.Cmd) {
	t.Helper()
	command = exec.Command(built.Path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	messages, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill(); command.Wait() })
	reader := bufio.NewReader(messages)
	url = addressIn(t, reader)
	go io.Copy(os.Stderr, reader)
	return url, command
}

// What was recorded before the server was killed is in the history of the next one, with the hot
// method's share.
func TestHistory(t *testing.T) {
	guest := start(t, "Plain")
	dir := filepath.Join(t.TempDir(), "history")
	args := []string{"-F", strconv.Itoa(frequency), "--history-dir", dir}
	url, command := serveWith(t, args...)
	began := time.Now()
	live := hotShare(t, fmt.Sprintf("%s/profiles/cpu?seconds=3&pid=%d", url, guest.PID()))
	metric := func(name string) float64 {
		_, body := profiler.Get(t, url+"/metrics")
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("no %s in\n%s", name, body)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	eventually(t, "a window is in the history", func() bool { return metric("vmprof_history_windows_total") >= 1 })
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	command.Wait()
	killed := time.Now()

	// Without the server.
	from, to := strconv.FormatInt(began.Unix()-1, 10), strconv.FormatInt(killed.Unix()+1, 10)
	got := mustSucceed(t, "report", "--from", from, "--to", to, "--history-dir", dir)
	for _, want := range []string{"guest.Plain.heavy", "Services from ", "from the history: "} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("report does not show %q:\n%s", want, got.stdout)
		}
	}
	// With the next one, whose windows come to the same history.
	url, last := serveWith(t, args...)
	pull := fmt.Sprintf("/profiles/cpu?from=%s&to=%s&pid=%d", from, to, guest.PID())
	if past := hotShare(t, url+pull); math.Abs(past-live) > 0.1 {
		t.Errorf("%.3f of the CPU time in the history are %s's, %.3f of a profile then", past, heavy, live)
	}
	eventually(t, "a window of the next server", func() bool { return metric("vmprof_history_windows_total") >= 1 })
	if oldest := metric("vmprof_history_oldest_timestamp_seconds"); oldest > float64(killed.Unix()) {
		t.Errorf("the oldest window began at %v, after the first server was killed", oldest)
	}
	// One that is interrupted writes the window that is open.
	end := func() time.Time {
		slices, err := history.Read(dir).Timeline(t.Context(), killed, time.Now(), "")
		if err != nil || len(slices) == 0 {
			t.Fatalf("the history has %d windows since the first server was killed, %v", len(slices), err)
		}
		return slices[len(slices)-1].End
	}
	eventually(t, "the open window is two seconds long", func() bool { return time.Since(end()) > 2*time.Second })
	interrupted := time.Now()
	if err := last.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := last.Wait(); err != nil {
		t.Error(err)
	}
	if last := end(); last.Before(interrupted.Add(-time.Second)) {
		t.Errorf("the history ends at %v; the server was interrupted at %v", last, interrupted)
	}
}

// hotShare is the share of the hot method in a profile.
func hotShare(t *testing.T, url string) float64 {
	t.Helper()
	status, body := profiler.Get(t, url)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", url, status, body)
	}
	p, err := profile.ParseData([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	found := stacks.FromProfile(p)
	all := stacks.Count(found, func(stacks.Stack) bool { return true })
	if all == 0 {
		t.Fatalf("%s has no samples: %q", url, p.Comments)
	}
	share := float64(stacks.Count(found, func(s stacks.Stack) bool { return s.Self(heavy) })) / float64(all)
	if share < 0.2 {
		t.Errorf("%s: %.3f are %s's", url, share, heavy)
	}
	return share
}
