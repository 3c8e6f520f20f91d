package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// KernelTicks sample at the kernel's own ticks, which come CONFIG_HZ times a second on every busy
// CPU. They add no interrupt to the machine. CPUs that the kernel spares its tick (nohz_full) have
// sampling events of their own.
type KernelTicks struct {
	tick   *bpf.KernelTick
	link   link.Link
	others *Ticks // nil if there are none
}

// Functions are where functions of the kernel are: those that there are, by name.
type Functions func(names ...string) map[string]bpf.CodeRange

// timerInterrupts are the functions through which CPUs enter the kernel when the tick's timer
// expires.
var timerInterrupts = []string{
	"asm_sysvec_apic_timer_interrupt", "asm_sysvec_hyperv_stimer0", "asm_sysvec_xen_hvm_callback",
	"asm_exc_xen_hypervisor_callback",
	"asm_common_interrupt", "asm_fred_entrypoint_kernel", // x86-64
	"el1h_64_irq", "el1h_64_fiq", // arm64
}

// tickFunctions are the functions of the tick's timer: since Linux 6.8, and before, when the other
// was not a timer's.
var tickFunctions = []string{"tick_nohz_handler", "tick_sched_timer"}

// NewKernelTicks prepares samples at hz of the kernel's ticks per second of CPU time, drawn at
// random. It fails where the kernel lets no program follow its tick. Nothing is sampled before
// Start.
func NewKernelTicks(objects *bpf.Objects, hz int, find Functions) (_ *KernelTicks, err error) {
	rate, err := KernelHz()
	if err != nil {
		return nil, err
	}
	if hz > rate {
		return nil, fmt.Errorf("%d Hz: %w of %d Hz, the rate of its tick: choose -F %[3]d or lower, or "+
			"--clock=cpu-clock", hz, ErrFrequency, rate)
	}
	functions := find(slices.Concat(timerInterrupts, tickFunctions)...)
	opts := bpf.KernelTickOptions{Share: float64(hz) / float64(rate)}
	for _, name := range timerInterrupts {
		if f, ok := functions[name]; ok {
			opts.Entries = append(opts.Entries, f)
		}
	}
	if len(opts.Entries) == 0 {
		return nil, errors.New("the addresses of the kernel's functions are hidden: grant CAP_SYSLOG, with sysctl " +
			"kernel.kptr_restrict at 0 or 1, or use --clock=cpu-clock")
	}
	for _, name := range slices.Backward(tickFunctions) {
		if f, ok := functions[name]; ok {
			opts.Function = f.Start
			break
		}
	}
	others, err := ticklessCPUs()
	if err != nil {
		return nil, err
	}
	opts.OtherClock = slices.Collect(maps.Keys(others))

	t := new(KernelTicks)
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if len(others) > 0 {
		if t.others, err = newCPUClock(objects.Tick, hz, others); err != nil {
			return nil, err
		}
	}
	var refusals []error
	for _, opts.Hook = range []bpf.TickHook{bpf.ChargeTick, bpf.ExpireTick} {
		if refusal := t.follow(objects, opts); refusal != nil {
			refusals = append(refusals, refusal)
			continue
		}
		return t, nil
	}
	return nil, fmt.Errorf("%w; use --clock=cpu-clock", errors.Join(refusals...))
}

// follow attaches the program and waits for a first tick.
func (t *KernelTicks) follow(objects *bpf.Objects, opts bpf.KernelTickOptions) error {
	if opts.Hook == bpf.ExpireTick && opts.Function == 0 {
		return errors.New("the kernel has no function of the tick's timer")
	}
	tick, err := objects.LoadKernelTick(opts)
	if err != nil {
		return err
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: tick.Program})
	if err != nil {
		return errors.Join(fmt.Errorf("follow %v: %w", opts.Hook, err), tick.Close())
	}
	if err := awaitTick(tick); err != nil {
		return errors.Join(fmt.Errorf("follow %v: %w", opts.Hook, err), l.Close(), tick.Close())
	}
	t.tick, t.link = tick, l
	return nil
}

// awaitTick keeps a CPU busy until it ticks: five ticks are due in that much CPU time at the lowest
// CONFIG_HZ.
func awaitTick(tick *bpf.KernelTick) error {
	const patience = 50 * time.Millisecond
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for begin := threadTime(); ; {
		ticked, err := tick.Ticked()
		if err != nil || ticked {
			return err
		}
		if threadTime()-begin > patience {
			return fmt.Errorf("no tick in %v", patience)
		}
	}
}

// threadTime is the CPU time of the calling thread.
func threadTime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // fails for unknown clocks only
	return time.Duration(ts.Nano())
}

// Start begins to sample.
func (t *KernelTicks) Start() error {
	if t.others != nil {
		if err := t.others.Start(); err != nil {
			return err
		}
	}
	return t.tick.Sample(true)
}

// Stop ends sampling; Start continues.
func (t *KernelTicks) Stop() error {
	err := t.tick.Sample(false)
	if t.others != nil {
		err = errors.Join(err, t.others.Stop())
	}
	return err
}

// Refresh opens events on CPUs with another clock that came online, and closes those of CPUs that
// went offline.
func (t *KernelTicks) Refresh() error {
	if t.others == nil {
		return nil
	}
	return t.others.Refresh()
}

// SetPeriod is Ticks.SetPeriod. The kernel's own tick is never more often than it is.
func (t *KernelTicks) SetPeriod(period time.Duration) error {
	rate, err := KernelHz()
	if err == nil {
		err = t.tick.SetShare(float64(time.Second) / float64(period) / float64(rate))
	}
	if t.others != nil {
		err = errors.Join(err, t.others.SetPeriod(period))
	}
	return err
}

// Gaps is Ticks.Gaps of CPUs with another clock.
func (t *KernelTicks) Gaps(began, ended time.Duration) ([]Gap, error) {
	if t.others == nil {
		return nil, nil
	}
	return t.others.Gaps(began, ended)
}

// Close takes the programs out of the kernel.
func (t *KernelTicks) Close() error {
	var errs []error
	if t.link != nil {
		errs = append(errs, t.link.Close(), t.tick.Close())
	}
	if t.others != nil {
		errs = append(errs, t.others.Close())
	}
	return errors.Join(errs...)
}

// KernelHz is the kernel's CONFIG_HZ: that clock advances once a tick.
func KernelHz() (int, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		return 0, fmt.Errorf("read the period of the kernel's tick: %w", err)
	}
	if ts.Nano() <= 0 {
		return 0, errors.New("the kernel's tick has no period")
	}
	return int(math.Round(1e9 / float64(ts.Nano()))), nil
}

// TicksEverywhere reports whether the kernel ticks on all CPUs, so that KernelTicks need no
// sampling events.
func TicksEverywhere() bool {
	others, err := ticklessCPUs()
	return err == nil && len(others) == 0
}

// ticklessCPUs are those that the kernel spares its tick while they have one thread to run.
func ticklessCPUs() (map[int]bool, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/nohz_full")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without CONFIG_NO_HZ_FULL
	}
	if err != nil {
		return nil, fmt.Errorf("list CPUs without a tick: %w", err)
	}
	return parseTickless(string(b))
}

// parseTickless parses the kernel's list, which is empty or "(null)" if there are none.
func parseTickless(s string) (map[int]bool, error) {
	if s := strings.TrimSpace(s); s == "" || s == "(null)" {
		return nil, nil
	}
	return parseCPUList(s)
}
