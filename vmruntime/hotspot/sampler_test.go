package hotspot

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sample takes the instruction pointers of one thread of the guest for a while, 4,000 times per
// second of its CPU time: by perf events, with no part of this project in between.
func (vm *jvm) sample(t testing.TB, thread string, d time.Duration) []uint64 {
	t.Helper()
	const pages = 64
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample:      250_000, // ns
		Sample_type: unix.PERF_SAMPLE_IP,
		Bits:        unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}, vm.thread(t, thread), -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		unavailable(t, fmt.Sprintf("perf event: %v", err))
	}
	defer unix.Close(fd)
	ring, err := unix.Mmap(fd, 0, (1+pages)*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unavailable(t, fmt.Sprintf("perf ring: %v", err))
	}
	defer unix.Munmap(ring)
	time.Sleep(d)

	page := (*unix.PerfEventMmapPage)(unsafe.Pointer(&ring[0]))
	data := ring[os.Getpagesize():]
	head := atomic.LoadUint64(&page.Data_head)
	var pcs []uint64
	for at := uint64(0); at < head; {
		const header = 8 // type, flags, size; then the instruction pointer
		kind := binary.LittleEndian.Uint32(data[at%uint64(len(data)):])
		size := binary.LittleEndian.Uint16(data[(at+6)%uint64(len(data)):])
		if kind == unix.PERF_RECORD_SAMPLE {
			pcs = append(pcs, binary.LittleEndian.Uint64(data[(at+header)%uint64(len(data)):]))
		}
		at += uint64(size)
	}
	return pcs
}

// thread returns the id of the guest's thread of that name.
func (vm *jvm) thread(t testing.TB, name string) int {
	t.Helper()
	comms, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", vm.pid))
	for _, comm := range comms {
		if text, err := os.ReadFile(comm); err == nil && strings.TrimSpace(string(text)) == name {
			tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(comm)))
			return tid
		}
	}
	t.Fatalf("guest has no thread %q", name)
	return 0
}
