package faults

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// An agentRun is a started agent with any arguments.
type agentRun struct {
	*exec.Cmd
	output outputFile
}

// An outputFile has what the agent has printed so far.
type outputFile string

func (f outputFile) String() string {
	text, err := os.ReadFile(string(f))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// startAgent starts a command, by default the agent, and kills it when the test ends.
func startAgent(t *testing.T, name string, args ...string) *agentRun {
	t.Helper()
	path := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	run := &agentRun{exec.Command(name, args...), outputFile(path)}
	run.Stdout, run.Stderr = file, file
	run.Dir = t.TempDir()
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		run.Process.Kill()
		run.Wait()
	})
	return run
}

// wait waits for the agent's end and returns its exit code; -1 if a signal killed it.
func (r *agentRun) wait(t *testing.T) int {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		r.Cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatalf("the agent does not end:\n%s", r.output)
	}
	return r.ProcessState.ExitCode()
}

// serve starts the agent as a server on a free port. When the test ends, the server is interrupted,
// and must end cleanly.
func serve(t *testing.T, args ...string) (url string, agent *agentRun) {
	t.Helper()
	needs.Root(t, "sampling")
	agent = startAgent(t, built.Path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	t.Cleanup(func() {
		agent.Process.Signal(os.Interrupt)
		if code := agent.wait(t); code != 0 {
			t.Errorf("an interrupted server ended with exit code %d", code)
		}
		if t.Failed() {
			for line := range strings.Lines(agent.output.String()) {
				if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
					t.Log(line)
				}
			}
		}
	})
	return agent.address(t), agent
}

// address waits until a server reports its address.
func (r *agentRun) address(t *testing.T) (url string) {
	t.Helper()
	address := regexp.MustCompile(`http://[0-9.]+:[0-9]+`)
	wait.For(t, time.Minute, "the server says where it is", func() bool {
		url = address.FindString(r.output.String())
		return url != ""
	})
	return url
}

// download gets a profile of a server.
func download(t *testing.T, url string) *profile.Profile {
	t.Helper()
	status, body := profiler.Get(t, url)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", url, status, body)
	}
	p, err := profile.ParseData([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
