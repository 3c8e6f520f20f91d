//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// An ioRing is one of io_uring's pairs of queues, as far as these tests need it
// (include/uapi/linux/io_uring.h).
type ioRing struct {
	fd       int
	entries  []byte // the submission queue's entries
	sq, cq   []byte
	offsets  ioOffsets
	submits  uint32
	device   *os.File
	capacity uint32
}

// ioOffsets is the end of struct io_uring_params: where things are in the queues.
type ioOffsets struct {
	SQHead, SQTail, SQMask, SQEntries, SQFlags, SQDropped, SQArray, _ uint32
	_                                                                 uint64
	CQHead, CQTail, CQMask, CQEntries, CQOverflow, CQEs, CQFlags, _   uint32
	_                                                                 uint64
}

type ioParams struct {
	SQEntries, CQEntries, Flags, SQThreadCPU, SQThreadIdle, Features, WQFd uint32
	_                                                                      [3]uint32
	ioOffsets
}

// newIORing opens queues whose operations read zeros.
func newIORing(t *testing.T, entries uint32) *ioRing {
	t.Helper()
	var p ioParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if errno == unix.ENOSYS {
		t.Skip("this kernel has no io_uring")
	}
	if errno != 0 {
		t.Fatalf("io_uring_setup: %v", errno)
	}
	r := &ioRing{fd: int(fd), offsets: p.ioOffsets, capacity: p.SQEntries}
	t.Cleanup(func() { unix.Close(r.fd) })
	const sqRing, cqRing, sqEntries = 0, 0x8000000, 0x10000000
	for _, m := range []struct {
		to     *[]byte
		offset int64
		size   uint32
	}{
		{&r.sq, sqRing, p.SQArray + 4*p.SQEntries},
		{&r.cq, cqRing, p.CQEs + 16*p.CQEntries},
		{&r.entries, sqEntries, 64 * p.SQEntries},
	} {
		mem, err := unix.Mmap(r.fd, m.offset, int(m.size), unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			t.Fatalf("map a queue of io_uring: %v", err)
		}
		*m.to = mem
		t.Cleanup(func() { unix.Munmap(mem) })
	}
	var err error
	if r.device, err = os.Open("/dev/zero"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.device.Close() })
	return r
}

// read has workers of the kernel fill each buffer, and waits until they did. Operations that the
// kernel cancels are submitted again: it cancels them where it cannot create a worker, as while a
// signal is pending (create_io_worker in io_uring/io-wq.c), and the Go runtime sends many.
func (r *ioRing) read(t *testing.T, buffers [][]byte) {
	t.Helper()
	const tries = 1000
	for range tries {
		if buffers = r.try(t, buffers); len(buffers) == 0 {
			return
		}
	}
	t.Fatalf("the kernel canceled %d reads %d times", len(buffers), tries)
}

// try submits a read of each buffer and returns those that the kernel canceled.
func (r *ioRing) try(t *testing.T, buffers [][]byte) (canceled [][]byte) {
	t.Helper()
	if uint32(len(buffers)) > r.capacity {
		t.Fatalf("%d buffers for %d entries", len(buffers), r.capacity)
	}
	word := func(queue []byte, offset uint32) *uint32 { return (*uint32)(unsafe.Pointer(&queue[offset])) }
	mask := *word(r.sq, r.offsets.SQMask)
	for index, b := range buffers {
		const opRead, alwaysAsync = 22, 1 << 4
		i := r.submits & mask
		e := r.entries[64*i : 64*i+64]
		clear(e)
		e[0], e[1] = opRead, alwaysAsync
		binary.NativeEndian.PutUint32(e[4:], uint32(r.device.Fd()))
		binary.NativeEndian.PutUint64(e[16:], addressOf(b))
		binary.NativeEndian.PutUint32(e[24:], uint32(len(b)))
		binary.NativeEndian.PutUint64(e[32:], uint64(index))
		*word(r.sq, r.offsets.SQArray+4*i) = i
		r.submits++
	}
	atomic.StoreUint32(word(r.sq, r.offsets.SQTail), r.submits)
	const getEvents = 1
	head, tail := word(r.cq, r.offsets.CQHead), word(r.cq, r.offsets.CQTail)
	// a signal ends a wait early
	for n := uintptr(len(buffers)); int(atomic.LoadUint32(tail)-*head) < len(buffers); n = 0 {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), n, uintptr(len(buffers)), getEvents, 0, 0)
		if errno != 0 && errno != unix.EINTR {
			t.Fatalf("io_uring_enter: %v", errno)
		}
	}
	for range buffers {
		i := *head & *word(r.cq, r.offsets.CQMask)
		index := *word(r.cq, r.offsets.CQEs+16*i)
		result := int32(*word(r.cq, r.offsets.CQEs+16*i+8))
		atomic.StoreUint32(head, *head+1)
		switch {
		case result == -int32(unix.ECANCELED):
			canceled = append(canceled, buffers[index])
		case result <= 0:
			t.Fatalf("read through io_uring: %v", unix.Errno(-result))
		}
	}
	return canceled
}

// anonymous is memory of its own, page by page.
func anonymous(t *testing.T, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	return mem
}

// isIOWorker tells of a sample whether it is of a thread that io_uring made.
func isIOWorker(s *Sample) bool { return strings.HasPrefix(unix.ByteSliceToString(s.Comm), "iou-wrk") }

// Workers of io_uring never run user code. What their saved registers say is where their creator
// was.
func TestKernelIOWorkerSamples(t *testing.T) {
	o := load(t, Options{})
	ring := newIORing(t, 8)
	mem := anonymous(t, 32<<20)
	var buffers [][]byte
	for i := range 8 {
		buffers = append(buffers, mem[i<<22:(i+1)<<22])
	}
	stop := tickMe(t, o.Tick, 1000)
	samples := 0
	for rounds := 0; samples < 50; rounds++ {
		if rounds == 5000 {
			t.Fatalf("%d samples of workers in %d rounds", samples, rounds)
		}
		for range 20 {
			ring.read(t, buffers)
		}
		drain(t, o, func(raw []byte) {
			var s Sample
			if err := DecodeSample(raw, &s); err != nil {
				t.Fatal(err)
			}
			if !isIOWorker(&s) {
				return
			}
			samples++
			if len(s.User) != 0 || s.End != EndNone || s.Flags&SampleKernel == 0 || len(s.Kernel) == 0 {
				t.Errorf("%d user frames, ended by %q, flags %#x, %d kernel frames", len(s.User), s.End, s.Flags,
					len(s.Kernel))
			}
			if s.Pid != uint32(os.Getpid()) || s.Tid == s.Pid {
				t.Errorf("thread %d of process %d, want one of %d", s.Tid, s.Pid, os.Getpid())
			}
		})
	}
	stop()
}

// Memory that workers of io_uring touch first was touched for the process, by none of its code.
func TestKernelIOWorkerFaults(t *testing.T) {
	q := newProber(t, Options{})
	f := q.faults(t)
	if err := q.p.Probes.Put(uint32(ProbeFault), &ProbeRate{Every: 1}); err != nil {
		t.Fatal(err)
	}
	all, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	for cpu := range all {
		event, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS, Size: unix.PERF_ATTR_SIZE_VER5,
			Sample: 1, Sample_type: unix.PERF_SAMPLE_ADDR,
		}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		needKernel(t, err)
		t.Cleanup(func() { unix.Close(event) })
		if err := unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_SET_BPF, f.PageFault.FD()); err != nil {
			t.Fatal(err)
		}
	}
	ring := newIORing(t, 8)
	const size = 1 << 20
	mem := anonymous(t, size)
	ring.read(t, [][]byte{mem})
	low := addressOf(mem)
	faults := 0
	for _, o := range q.observations(t) {
		if address := o.seen.Values[0]; address < low || address >= low+size || !isIOWorker(&o.Sample) {
			continue
		}
		faults++
		if len(o.User) != 0 || o.text != "" || o.seen.Values[1] != 0 {
			t.Errorf("%d frames, %d bytes of registers, pc %#x", len(o.User), len(o.text), o.seen.Values[1])
		}
	}
	if faults < size/os.Getpagesize()/2 {
		t.Errorf("%d page faults of workers in %d pages", faults, size/os.Getpagesize())
	}
}
