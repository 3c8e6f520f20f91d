//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// needKernel skips the test if err says that BPF may not be used here; in CI that fails, like every other error.
func needKernel(t testing.TB, err error) {
	t.Helper()
	if err != nil && os.Getenv("CI") == "" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && os.Getuid() != 0 {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		t.Fatalf("load programs: %+v", err)
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
