package attach

import (
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MaxBranchHz bounds the frequency of branch records: 32 calls each.
const MaxBranchHz = 10_000

// NewBranchTicks prepares events that run prog hz times a second of CPU time spent in user mode, with the latest calls and
// indirect jumps that the CPU recorded, and which of both each is: linux/perf_event.h, PERF_SAMPLE_BRANCH_STACK. Only a CPU's own event has such records, so there is
// no software event to fall back to. Nothing ticks before Start.
func NewBranchTicks(prog *ebpf.Program, hz int) (*Ticks, error) {
	return newTicks("cycles with branch records", prog, unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample:             uint64(min(hz, MaxBranchHz)),
		Sample_type:        unix.PERF_SAMPLE_BRANCH_STACK,
		Branch_sample_type: branchKinds,
		Bits:               unix.PerfBitFreq | unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	})
}

// branchKinds are the records that are asked for: calls, and the jumps by which stubs pass calls on. The kernel decodes of
// which kind each is.
const branchKinds = unix.PERF_SAMPLE_BRANCH_USER | unix.PERF_SAMPLE_BRANCH_ANY_CALL | unix.PERF_SAMPLE_BRANCH_IND_JUMP |
	unix.PERF_SAMPLE_BRANCH_TYPE_SAVE

// A RawEvent is an event of a CPU's own, as its PMU's format files in /sys describe it.
type RawEvent struct {
	Type   uint32 // of the PMU
	Config uint64
}

// preciseNext asks that the sampled instruction be the one after that which raised the event (PEBS):
// perf_event_attr.precise_ip of linux/perf_event.h, two bits, 1 is "constant skid".
const preciseNext = unix.PerfBitPreciseIPBit1

// NewRetiredTicks prepares events that run prog at every period-th occurrence of e in user mode. Nothing ticks before
// Start.
func NewRetiredTicks(prog *ebpf.Program, e RawEvent, period uint64) (*Ticks, error) {
	return newTicks("retired calls", prog, unix.PerfEventAttr{
		Type: e.Type, Config: e.Config, Size: unix.PERF_ATTR_SIZE_VER5, Sample: period,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | preciseNext,
	})
}
