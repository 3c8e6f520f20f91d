package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// NewFaults prepares events that run prog at every page fault, on every CPU, with the address that was touched. Nothing
// comes before Start.
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

// NewOverflows prepares events that run prog each time that so many events of a counter have happened in user mode, on every
// CPU. Nothing comes before Start. ErrNoCounters if there is no such counter.
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
