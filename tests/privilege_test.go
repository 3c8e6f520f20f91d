package tests

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// six are the capabilities that the documentation asks for instead of root.
var six = []uintptr{
	unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_SYSLOG,
	unix.CAP_CHECKPOINT_RESTORE,
}

func TestWithSixCapabilities(t *testing.T) {
	guest := start(t, "Plain")
	needParanoidAtMost(t, 2)
	path := nobodysOutput(t)
	got := finish(t, asNobody(t, six, "record", "-p", strconv.Itoa(guest.PID()),
		"-d", "1s", "-F", strconv.Itoa(frequency), "-o", path))
	if got.code != 0 {
		t.Fatalf("ended with %d:\n%s", got.code, got.stderr)
	}
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkHeavy(t, p)
}

// A limit on locked memory that cannot be raised is no error: kernels since 5.11 do not count BPF
// memory by it.
func TestWithoutLockedMemory(t *testing.T) {
	guest := start(t, "Plain")
	needParanoidAtMost(t, 2)
	path := nobodysOutput(t)
	command := asNobody(t, six, "-c", `ulimit -l 8 && exec "$@"`, "sh", built.Path, "record",
		"-p", strconv.Itoa(guest.PID()), "-d", "1s", "-F", strconv.Itoa(frequency), "-o", path)
	command.Path, command.Args[0] = "/bin/sh", "sh"
	if got := finish(t, command); got.code != 0 {
		t.Fatalf("ended with %d:\n%s", got.code, got.stderr)
	}
	if _, err := profiler.ReadProfile(path); err != nil {
		t.Error(err)
	}
}

// needParanoidAtMost lowers the sysctl for the test if it must: above 2, the kernel asks for
// CAP_SYS_ADMIN too.
func needParanoidAtMost(t *testing.T, most int) {
	t.Helper()
	const sysctl = "/proc/sys/kernel/perf_event_paranoid"
	text, err := os.ReadFile(sysctl)
	if err != nil {
		t.Fatal(err)
	}
	value, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if value <= most {
		return
	}
	err = os.WriteFile(sysctl, []byte(strconv.Itoa(most)), 0)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES) {
		t.Skip(fmt.Errorf("perf_event_paranoid is %d and cannot be lowered: %w", value, err))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(sysctl, text, 0); err != nil {
			t.Error(err)
		}
	})
}
