//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// needKernel skips the test if err says that BPF may not be used here; in CI that fails, like every
// other error.
func needKernel(t testing.TB, err error) {
	t.Helper()
	if err != nil && os.Getenv("CI") == "" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) &&
		os.Getuid() != 0 {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		t.Fatalf("load programs: %+v", err)
	}
}

// mostVerified bounds the instructions that the verifier follows of one program. It takes about 1.5
// us for each, and the agent's start is mostly that. The walk of waiting threads has the most: each of
// its reads looks for the copy of a page.
const mostVerified = 65_000

// checkVerified fails the test if the verifier had more to do than it should.
func checkVerified(t *testing.T, programs ...*ebpf.Program) {
	t.Helper()
	for _, p := range programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.VerifiedInstructions()
		t.Logf("%s: %d instructions verified", info.Name, n)
		if n > mostVerified {
			t.Errorf("%s: the verifier followed %d instructions, at most %d are to be: see what made them more",
				info.Name, n, mostVerified)
		}
	}
}

// olderThan tells of the running kernel whether it is from before a release.
func olderThan(t *testing.T, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a < major || a == major && b < minor
}

// monotonic is the time of the clock that records have.
func monotonic(t testing.TB) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano()
}
