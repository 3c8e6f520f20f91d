package attach

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A CodeTable names code of the kernel that comes and goes: symbolize.Loaded. Sizes are in bytes.
type CodeTable interface {
	Add(start, size uint64, name string)
	Resize(start, size uint64)
	Remove(start uint64)
}

// LoadedCode follows BPF programs as they are loaded into the kernel and unloaded: perf events of
// each CPU (PERF_RECORD_KSYMBOL) have the address and the size of each function.
type LoadedCode struct {
	into CodeTable
	lost atomic.Uint64

	mu     sync.Mutex
	cpus   map[int]*perfRing
	closed bool
}

// FollowLoadedCode adds what is loaded from now on to into, at each call of Drain. It needs
// CAP_PERFMON.
func FollowLoadedCode(into CodeTable) (*LoadedCode, error) {
	c := &LoadedCode{into: into, cpus: map[int]*perfRing{}}
	if err := c.Drain(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Drain takes what was loaded until now. CPUs that came online are followed from then on. Several
// goroutines may call it.
func (c *LoadedCode) Drain() error {
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for cpu := range online {
		if c.cpus[cpu] != nil || c.closed {
			continue
		}
		r, err := openLoads(cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // The CPU went offline after the list was read.
		}
		if err != nil {
			return fmt.Errorf("follow code that is loaded into the kernel, on cpu %d: %w", cpu, err)
		}
		c.cpus[cpu] = r
	}
	for cpu, r := range c.cpus {
		r.drain(c.take)
		if !online[cpu] {
			r.close()
			delete(c.cpus, cpu)
		}
	}
	return nil
}

// DrainUntil drains often until ctx ends: while many programs are loaded.
func (c *LoadedCode) DrainUntil(ctx context.Context) {
	const often = 20 * time.Millisecond
	for tick := time.NewTicker(often); ctx.Err() == nil; {
		_ = c.Drain() // the next one that is not so often reports errors
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
	}
	_ = c.Drain()
}

// Lost is how many records were lost: the code of which has no name, or that of what was there
// before.
func (c *LoadedCode) Lost() uint64 { return c.lost.Load() }

// Close ends all events.
func (c *LoadedCode) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for cpu, r := range c.cpus {
		r.close()
		delete(c.cpus, cpu)
	}
	return nil
}

// take handles one record: linux/perf_event.h, PERF_RECORD_KSYMBOL and PERF_RECORD_LOST.
func (c *LoadedCode) take(kind uint32, record []byte) {
	switch {
	case kind == unix.PERF_RECORD_LOST && len(record) >= 16:
		c.lost.Add(binary.NativeEndian.Uint64(record[8:]))
	case kind == unix.PERF_RECORD_KSYMBOL && len(record) > 16:
		start, size := binary.NativeEndian.Uint64(record), binary.NativeEndian.Uint32(record[8:])
		of, flags := binary.NativeEndian.Uint16(record[12:]), binary.NativeEndian.Uint16(record[14:])
		name, _, _ := bytes.Cut(record[16:], []byte{0})
		switch {
		case of != unix.PERF_RECORD_KSYMBOL_TYPE_BPF || size == 0:
		case flags&unix.PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0:
			c.into.Remove(start)
		default:
			c.into.Add(start, uint64(size), string(name))
		}
	}
}

// A perfRing is the buffer of a perf event, which the kernel writes.
type perfRing struct {
	fd   int
	page *unix.PerfEventMmapPage // followed by the data
	all  []byte
	data []byte
}

// ringPages is how many pages of records there are for each CPU: of some 100 functions.
const ringPages = 2

// loadedBits of a perf event: it counts nothing, and has records of code that is loaded
// (perf_event_attr.ksymbol).
const loadedBits = 1 << 29

func openLoads(cpu int) (*perfRing, error) {
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Size: unix.PERF_ATTR_SIZE_VER5,
		Bits: loadedBits,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	page := os.Getpagesize()
	all, err := unix.Mmap(fd, 0, (1+ringPages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &perfRing{fd: fd, page: (*unix.PerfEventMmapPage)(unsafe.Pointer(&all[0])), all: all, data: all[page:]}, nil
}

// drain calls each for all records, without their headers. They are valid until it returns.
func (r *perfRing) drain(each func(kind uint32, record []byte)) {
	const header = 8
	head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
	for head-tail >= header {
		h := r.read(tail, header)
		kind, size := binary.NativeEndian.Uint32(h), uint64(binary.NativeEndian.Uint16(h[6:]))
		if size < header || size > head-tail {
			tail = head // never: the kernel writes whole records
			break
		}
		each(kind, r.read(tail, size)[header:])
		tail += size
	}
	atomic.StoreUint64(&r.page.Data_tail, tail)
}

// read copies bytes, which may go round the end of the buffer.
func (r *perfRing) read(at, n uint64) []byte {
	out := make([]byte, n)
	from := at % uint64(len(r.data))
	copied := copy(out, r.data[from:])
	copy(out[copied:], r.data)
	return out
}

func (r *perfRing) close() {
	unix.Munmap(r.all)
	unix.Close(r.fd)
}

// SizeLoadedCode has the functions of BPF programs end where they do, of those that are loaded
// already. The kernel tells that to CAP_SYS_ADMIN only; without it nothing changes.
func SizeLoadedCode(into CodeTable) {
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // The program was unloaded after its id was read.
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			continue
		}
		starts, _ := info.JitedKsymAddrs()
		sizes, _ := info.JitedFuncLens()
		for i := range min(len(starts), len(sizes)) {
			into.Resize(uint64(starts[i]), uint64(sizes[i]))
		}
	}
}
