// Package attach connects the BPF programs with the events that run them: sampling events on CPUs,
// probes in libraries of processes. It also chooses the clock (Clock), slows ticks down that cost
// too much (Pace), and follows code that the kernel loads (LoadedCode).
package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// Ticks are sampling events, one on every online CPU, or on some of them.
type Ticks struct {
	Event string // the counted event, in the kernel's words: "cpu-clock"

	prog *ebpf.Program
	attr unix.PerfEventAttr
	only map[int]bool  // CPUs; nil means all
	mean time.Duration // from one tick to the next, where that varies; 0 if it does not

	mu        sync.Mutex // guards what follows, and attr
	cpus      map[int]*tick
	ticking   bool
	gaps      []Gap
	looked    time.Duration // CLOCK_MONOTONIC: at the list of online CPUs
	checked   time.Duration // CLOCK_MONOTONIC: the events
	suspended time.Duration // how long the machine was suspended since it was started
}

type tick struct {
	fd   int
	link link.Link

	watched time.Duration // CLOCK_MONOTONIC
	before  time.Duration // how long it had counted then
}

// ErrFrequency: the kernel does not sample that often.
var ErrFrequency = errors.New("frequency is above the kernel's limit")

const maxRatePath = "/proc/sys/kernel/perf_event_max_sample_rate"

// NewTicks prepares events that run prog hz times per second of CPU time. Nothing ticks before
// Start.
//
// They use a timer and not the CPU's own counters. A counter is another clock than CPU time if its
// frequency changes, and is shared with other programs that count. In a virtual machine it may
// stall CPUs for seconds: its interrupts cannot be masked, and each access to a counter leaves the
// machine.
func NewTicks(prog *ebpf.Program, hz int) (*Ticks, error) { return newCPUClock(prog, hz, nil) }

// newCPUClock is NewTicks on some CPUs; nil means all.
//
// Idle CPUs are not sampled. The kernel throttles an event that overflows more than
// perf_event_max_sample_rate / CONFIG_HZ times between two scheduler ticks, until the next
// scheduler tick. An idle CPU has no scheduler ticks: at 4 kHz, 0.1 s of idleness throttled the
// event, and threads that then ran briefly had no samples for up to hundreds of milliseconds.
func newCPUClock(prog *ebpf.Program, hz int, only map[int]bool) (*Ticks, error) {
	if limit := maxRate(); limit > 0 && hz > limit {
		return nil, fmt.Errorf("%d Hz: %w of %d Hz: choose a lower -F, or raise the sysctl "+
			"kernel.perf_event_max_sample_rate", hz, ErrFrequency, limit)
	}
	return openTicks(&Ticks{Event: "cpu-clock", prog: prog, only: only, mean: time.Second / time.Duration(hz),
		attr: unix.PerfEventAttr{
			Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER5,
			Sample: uint64(hz), Bits: unix.PerfBitFreq | unix.PerfBitDisabled | unix.PerfBitExcludeIdle,
		}})
}

// newTicks opens one event on every CPU.
func newTicks(name string, prog *ebpf.Program, attr unix.PerfEventAttr) (*Ticks, error) {
	return openTicks(&Ticks{Event: name, prog: prog, attr: attr})
}

// openTicks opens the events.
func openTicks(t *Ticks) (*Ticks, error) {
	t.cpus = map[int]*tick{}
	t.attr.Read_format = unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING
	if err := t.Refresh(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Start enables all events.
func (t *Ticks) Start() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cpu, k := range t.cpus {
		if err := unix.IoctlSetInt(k.fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			return fmt.Errorf("enable sampling on cpu %d: %w", cpu, err)
		}
		k.watch()
	}
	t.ticking, t.looked = true, proc.Monotonic()
	t.due(t.looked)
	t.attr.Bits &^= unix.PerfBitDisabled // CPUs that come later tick at once
	return nil
}

// Stop disables all events; Start continues.
func (t *Ticks) Stop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ticking {
		t.check()
	}
	t.ticking = false
	var errs []error
	for _, k := range t.cpus {
		errs = append(errs, unix.IoctlSetInt(k.fd, unix.PERF_EVENT_IOC_DISABLE, 0))
	}
	return errors.Join(errs...)
}

// Refresh opens events on CPUs that came online and closes those of CPUs that went offline. Gaps
// has for how long the former were not sampled, at most.
func (t *Ticks) Refresh() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ticking && t.due(proc.Monotonic()) {
		t.check()
	}
	if err := t.refresh(); err != nil {
		return err
	}
	if t.ticking && 0 < t.mean && t.mean <= longestVaried {
		t.vary()
	}
	return nil
}

// variation is by how much of the mean a period is longer or shorter, at most.
const variation = 0.01

// longestVaried bounds the periods that vary. A change begins a new period, and the begun one is
// lost: half a period at each Refresh.
const longestVaried = 20 * time.Millisecond

// vary gives each event another period and phase. With a constant period, programs that work at a
// pace near a multiple or a fraction of it would have ticks at the same place of their work for
// seconds. An event that the kernel refuses to change ticks on as it did.
func (t *Ticks) vary() {
	for _, k := range t.cpus {
		k.setPeriod(time.Duration(float64(t.mean) * (1 + variation*(2*rand.Float64()-1))))
	}
}

// SetPeriod has ticks that are so far apart from the next Refresh on, at most longestVaried.
func (t *Ticks) SetPeriod(period time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mean = period
	return nil
}

// setPeriod begins a new period, of that length.
func (k *tick) setPeriod(period time.Duration) error {
	ns := uint64(period)
	if _, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(k.fd), unix.PERF_EVENT_IOC_PERIOD,
		uintptr(unsafe.Pointer(&ns))); err != 0 {
		return fmt.Errorf("change the period of a sampling event: %w", err)
	}
	return nil
}

func (t *Ticks) refresh() error {
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	before := t.looked
	t.looked = proc.Monotonic()
	for cpu := range t.cpus {
		if !online[cpu] {
			t.cpus[cpu].close()
			delete(t.cpus, cpu)
		}
	}
	for cpu := range online {
		if t.cpus[cpu] != nil || t.only != nil && !t.only[cpu] {
			continue
		}
		k, err := t.open(cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // went offline meanwhile
		}
		if err != nil {
			return err
		}
		t.cpus[cpu] = k
		if t.ticking {
			k.watch()
			t.miss(cpu, before)
		}
	}
	return nil
}

func (t *Ticks) open(cpu int) (*tick, error) {
	attr := t.attr
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("open %s event on cpu %d: %w: needs CAP_PERFMON and the sysctl "+
			"kernel.perf_event_paranoid at 2 or below, or CAP_SYS_ADMIN", t.Event, cpu, err)
	}
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("open %s event on cpu %d: %w: raise the limit on open files (ulimit -n): two for each "+
			"CPU", t.Event, cpu, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s event on cpu %d: %w", t.Event, cpu, err)
	}
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: t.prog, Attach: ebpf.AttachPerfEvent})
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("attach to %s event on cpu %d: %w", t.Event, cpu, err)
	}
	return &tick{fd: fd, link: l}, nil
}

func (k *tick) close() {
	k.link.Close()
	unix.Close(k.fd)
}

// Close ends all events.
func (t *Ticks) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ticking = false
	for cpu, k := range t.cpus {
		k.close()
		delete(t.cpus, cpu)
	}
	return nil
}

func maxRate() int {
	b, err := os.ReadFile(maxRatePath)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// onlineCPUs reads the kernel's list: "0-3,5".
func onlineCPUs() (map[int]bool, error) {
	const path = "/sys/devices/system/cpu/online"
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[int]bool{0: true}, nil // a kernel without CPU hotplug and one CPU
	}
	if err != nil {
		return nil, fmt.Errorf("list online CPUs: %w", err)
	}
	return parseCPUList(string(b))
}

// parseCPUList parses "0-3,5"; at most 8,192 CPUs (the kernel's own bound).
func parseCPUList(s string) (map[int]bool, error) {
	const maxCPUs = 8192
	cpus := map[int]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a || b >= maxCPUs {
			return nil, fmt.Errorf("CPU list %q is malformed", s)
		}
		for c := a; c <= b; c++ {
			cpus[c] = true
		}
	}
	return cpus, nil
}

// NewFaults prepares events that run prog at every page fault, on every CPU, with the touched
// address. Nothing happens before Start.
func NewFaults(prog *ebpf.Program) (*Ticks, error) {
	return newTicks("page-faults", prog, unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample: 1, Sample_type: unix.PERF_SAMPLE_ADDR, Bits: unix.PerfBitDisabled,
	})
}

// ErrNoCounters: this machine's CPUs have no counters, or hide them.
var ErrNoCounters = errors.New("this machine has no CPU counters (most virtual machines have none)")

// A CPUCounter is a counter of the CPU's own that all architectures have.
type CPUCounter uint64

// Counters.
const (
	Cycles       CPUCounter = unix.PERF_COUNT_HW_CPU_CYCLES
	Instructions CPUCounter = unix.PERF_COUNT_HW_INSTRUCTIONS
)

// NewOverflows prepares events that run prog each time that period events of a counter have
// happened in user mode, on every CPU. Nothing happens before Start. ErrNoCounters if there is no
// such counter.
func NewOverflows(prog *ebpf.Program, c CPUCounter, period uint64) (*Ticks, error) {
	name := map[CPUCounter]string{Cycles: "cycles", Instructions: "instructions"}[c]
	t, err := newTicks(name, prog, unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: uint64(c), Size: unix.PERF_ATTR_SIZE_VER5, Sample: period,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("count %s: %w", name, ErrNoCounters)
	}
	return t, err
}

// MaxBranchHz bounds the frequency of branch records: 32 calls each.
const MaxBranchHz = 10_000

// NewBranchTicks prepares events that run prog hz times per second of CPU time in user mode. The
// program gets the latest calls and indirect jumps that the CPU recorded, and the kind of each:
// linux/perf_event.h, PERF_SAMPLE_BRANCH_STACK. Only a CPU's own event has such records, so there
// is no software event to fall back to. Nothing ticks before Start.
func NewBranchTicks(prog *ebpf.Program, hz int) (*Ticks, error) {
	return newTicks("cycles with branch records", prog, unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample:             uint64(min(hz, MaxBranchHz)),
		Sample_type:        unix.PERF_SAMPLE_BRANCH_STACK,
		Branch_sample_type: branchKinds,
		Bits:               unix.PerfBitFreq | unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	})
}

// branchKinds are the requested records: calls, and the jumps by which stubs pass calls on. The
// kernel decodes the kind of each.
const branchKinds = unix.PERF_SAMPLE_BRANCH_USER | unix.PERF_SAMPLE_BRANCH_ANY_CALL | unix.PERF_SAMPLE_BRANCH_IND_JUMP |
	unix.PERF_SAMPLE_BRANCH_TYPE_SAVE

// A RawEvent is an event of a CPU's own, as its PMU's format files in /sys describe it.
type RawEvent struct {
	Type   uint32 // type of the PMU
	Config uint64
}

// preciseNext requests that the sampled instruction is the one after that which raised the event
// (PEBS): perf_event_attr.precise_ip of linux/perf_event.h, two bits, 1 is "constant skid".
const preciseNext = unix.PerfBitPreciseIPBit1

// NewRetiredTicks prepares events that run prog at every period-th occurrence of e in user mode.
// Nothing ticks before Start.
func NewRetiredTicks(prog *ebpf.Program, e RawEvent, period uint64) (*Ticks, error) {
	return newTicks("retired calls", prog, unix.PerfEventAttr{
		Type: e.Type, Config: e.Config, Size: unix.PERF_ATTR_SIZE_VER5, Sample: period,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | preciseNext,
	})
}
