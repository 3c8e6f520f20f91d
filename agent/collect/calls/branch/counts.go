package branch

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

// trialCalls is the number of calls made to check that an event counts calls.
const trialCalls = 100_000

//go:noinline
func called() {}

// countsCalls makes trialCalls calls on this thread and checks that the event counts them. A raw
// event on a CPU of another design, or under a hypervisor that invents counts, does not.
func countsCalls(e attach.RawEvent) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := unix.PerfEventAttr{
		Type: e.Type, Config: e.Config, Size: unix.PERF_ATTR_SIZE_VER5,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open event %#x: %w", e.Config, err)
	}
	defer unix.Close(fd)
	before, err := readCount(fd)
	if err != nil {
		return err
	}
	for range trialCalls {
		called()
	}
	after, err := readCount(fd)
	if err != nil {
		return err
	}
	return plausible(after - before)
}

// plausible reports whether counted can be trialCalls calls plus those that the Go runtime made
// meanwhile.
func plausible(counted uint64) error {
	if counted < trialCalls || counted > trialCalls*5/4 {
		return fmt.Errorf("the event for retired calls counted %d of %d calls: it has another meaning on this CPU",
			counted, trialCalls)
	}
	return nil
}

func readCount(fd int) (uint64, error) {
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil {
		return 0, fmt.Errorf("read event: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}
