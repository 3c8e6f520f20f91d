package attach

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// The kernel lets a sampling event have another period while it ticks.
func TestKernelPeriod(t *testing.T) {
	needs.Root(t, "sampling")
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER5, Sample: 99,
		Bits: unix.PerfBitFreq,
	}, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := (&tick{fd: fd}).setPeriod(9 * time.Millisecond); err != nil {
		t.Error(err)
	}
}
