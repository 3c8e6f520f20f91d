package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Errors are clear, end with a non-zero code, and leave nothing half-written.
func TestRefusals(t *testing.T) {
	needs.Root(t, "sampling")
	directory := filepath.Join(t.TempDir(), "is-a-directory.pb.gz")
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	good := output(t, "out.pb.gz")
	gone := exec.CommandContext(t.Context(), "true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no such process": {[]string{"record", "-p", strconv.Itoa(gone.Process.Pid), "-o", good},
			"no process with pid"},
		"no directory": {[]string{"record", "-o", filepath.Join(t.TempDir(), "absent", "out.pb.gz")},
			"create it"},
		"no file can be made":    {[]string{"record", "-o", "/proc/out.pb.gz"}, "/proc"},
		"output is a directory":  {[]string{"record", "-o", directory}, directory},
		"unknown format":         {[]string{"record", "-o", output(t, "out.xml")}, ".pb.gz"},
		"frequency too high":     {[]string{"record", "-F", "100000000", "-o", good}, "perf_event_max_sample_rate"},
		"no such command":        {[]string{"record", "-o", good, "--", "/no/such/command"}, "/no/such/command"},
		"no such verb":           {[]string{"recrod"}, "recrod"},
		"report of nothing":      {[]string{"report", filepath.Join(t.TempDir(), "absent.pb.gz")}, "absent.pb.gz"},
		"report of another file": {[]string{"report", built.Path}, "pprof"},
		"address is none":        {[]string{"serve", "--listen", "nonsense"}, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			got := agent(t, tt.args...)
			if got.code == 0 {
				t.Errorf("%q succeeded", tt.args)
			}
			if !strings.Contains(got.stderr, tt.want) {
				t.Errorf("%q does not mention %q:\n%s", tt.args, tt.want, got.stderr)
			}
			if _, err := os.Stat(good); err == nil {
				t.Errorf("%q left a file", tt.args)
			}
		})
	}
}

// nobody is the user that owns nothing.
const nobody = 65534

// asNobody returns the agent's command as that user, with the capabilities given.
func asNobody(t *testing.T, capabilities []uintptr, args ...string) *exec.Cmd {
	command := exec.CommandContext(t.Context(), built.Path, args...)
	command.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: capabilities,
	}
	command.Dir = "/"
	return command
}

// nobodysOutput returns a path for a recording that nobody may write to.
func nobodysOutput(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmprof-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "out.pb.gz")
}

func TestWithoutPrivilege(t *testing.T) {
	needs.Root(t, "sampling")
	path := nobodysOutput(t)
	got := finish(t, asNobody(t, nil, "record", "-d", "1s", "-o", path))
	if got.code == 0 || !strings.Contains(got.stderr, "CAP_BPF") || !strings.Contains(got.stderr, "CAP_PERFMON") {
		t.Errorf("ended with %d, without naming the capabilities:\n%s", got.code, got.stderr)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it left a file")
	}
}
