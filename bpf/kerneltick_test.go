//go:build linux

package bpf

import (
	"bufio"
	"errors"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// kernelFunction is where a function of the kernel is; false if it has none of that name.
func kernelFunction(t *testing.T, name string) (r CodeRange, ok bool) {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		at, err := strconv.ParseUint(fields[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Start != 0 && at > r.Start:
			r.End = at
			return r, true
		case fields[2] == name:
			r.Start = at
		}
	}
	return r, false
}

// attachKernelTick has the kernel's own ticks sample, until the test ends.
func attachKernelTick(t *testing.T, k *KernelTick) {
	t.Helper()
	l, err := link.AttachTracing(link.TracingOptions{Program: k.Program})
	needKernel(t, err)
	if err := k.Sample(true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// loadKernelTick is the real program, sampling this process only.
func loadKernelTick(t *testing.T, opts Options, tick KernelTickOptions) (*Objects, *KernelTick) {
	t.Helper()
	opts.NoTick = true
	o := load(t, opts)
	if tick.Hook == ExpireTick {
		r, ok := kernelFunction(t, "tick_nohz_handler")
		if olderThan(t, 6, 8) {
			r, ok = kernelFunction(t, "tick_sched_timer")
		}
		if !ok {
			t.Fatal("the kernel has no function of the tick's timer")
		}
		tick.Function = r.Start
	}
	k, err := o.LoadKernelTick(tick)
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		for _, l := range ve.Log[max(0, len(ve.Log)-40):] {
			t.Log(l)
		}
	}
	if tick.Hook == ChargeTick && errors.Is(err, unix.EPERM) {
		t.Skipf("the kernel forbids tracing of functions: %v", err)
	}
	needKernel(t, err)
	t.Cleanup(func() { k.Close() })
	return o, k
}

// The verifier follows each way of taking contexts apart, as for the program of the sampling event.
// Tests of samples load the others. Both programs see the same ticks, and one of them takes a
// quarter.
func TestKernelTickLoad(t *testing.T) {
	mine := pin(t)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	others := otherCPUs(cpus, mine)
	all, each := loadKernelTick(t, Options{Contexts: ModePartial},
		KernelTickOptions{Hook: ExpireTick, Share: 1, OtherClock: others})
	some, quarter := loadKernelTick(t, Options{Contexts: ModeChain, CheckContexts: true},
		KernelTickOptions{Hook: ExpireTick, Share: 1. / 4, OtherClock: others})
	ticks := []*KernelTick{each, quarter}
	sample := func(on bool) {
		for _, k := range ticks {
			if err := k.Sample(on); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, k := range ticks {
		attachKernelTick(t, k)
	}
	attempts := func() (n [2]uint64) {
		for i, o := range []*Objects{all, some} {
			c, err := o.ReadCounts()
			if err != nil {
				t.Fatal(err)
			}
			n[i] = c[SamplesAttempted]
		}
		return n
	}
	sample(false)
	before := attempts()
	sample(true)
	spin(t, func() bool { return attempts()[0]-before[0] >= 200 })
	sample(false)
	after := attempts()
	n, taken := after[0]-before[0], after[1]-before[1]
	if off := float64(taken) - float64(n)/4; math.Abs(off) > 2 { // a tick may come while one of the two samples
		t.Errorf("%d of %d ticks, want a quarter", taken, n)
	}
}

// Every tick is accounted for. Samples are as those of the sampling event: the kernel's frames
// begin where the interrupt came. CPUs with another clock are left alone.
func TestKernelTickSamples(t *testing.T) {
	for _, hook := range []TickHook{ChargeTick, ExpireTick} {
		t.Run(hook.String(), func(t *testing.T) { kernelTickSamples(t, hook) })
	}
}

func kernelTickSamples(t *testing.T, hook TickHook) {
	t.Helper()
	const entryName = "asm_sysvec_apic_timer_interrupt"
	entry, ok := kernelFunction(t, entryName)
	if !ok {
		t.Skipf("the kernel has no %s: only x86-64 with a local APIC has", entryName)
	}
	handler, ok := kernelFunction(t, "hrtimer_interrupt")
	if !ok {
		t.Fatal("the kernel has no function for interrupts of timers")
	}
	mine := pin(t)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	others := otherCPUs(cpus, mine)
	o, k := loadKernelTick(t, Options{}, KernelTickOptions{Hook: hook, Share: 1, Entries: []CodeRange{entry},
		OtherClock: others})
	attachKernelTick(t, k)
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	buf := make([]byte, 1<<20)
	var inUser, inKernel int
	take := func(raw []byte) {
		checkOwnSample(t, raw)
		var s Sample
		if err := DecodeSample(raw, &s); err != nil {
			t.Fatal(err)
		}
		if int(s.CPU) != mine {
			t.Errorf("a sample of cpu %d, which has another clock", s.CPU)
		}
		if s.Flags&SampleKernel == 0 {
			inUser++
			return
		}
		inKernel++
		if len(s.Kernel) == 0 {
			t.Error("a tick in the kernel has no kernel frames")
		}
		for _, pc := range s.Kernel {
			if pc > handler.Start && pc <= handler.End {
				t.Errorf("kernel frames %#x have the tick's own interrupt", s.Kernel)
			}
		}
	}
	spin(t, func() bool {
		for range 10 {
			if _, err := zero.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, o, take)
		return inUser >= 20 && inKernel >= 20
	})
	if ticked, err := k.Ticked(); err != nil || !ticked {
		t.Errorf("ticked: %v, %v", ticked, err)
	}
	if err := k.Sample(false); err != nil {
		t.Fatal(err)
	}
	begin := processTime(t) // the last tick has ended: it was on this CPU
	drain(t, o, take)
	c, err := o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if c[SamplesAttempted] != c[SamplesDelivered]+c[SamplesDroppedRingFull]+c[SamplesDroppedNoScratch] {
		t.Errorf("attempted %d, delivered %d, dropped %d", c[SamplesAttempted], c[SamplesDelivered],
			c[SamplesDroppedRingFull]+c[SamplesDroppedNoScratch])
	}
	if got := uint64(inUser + inKernel); got != c[SamplesDelivered] {
		t.Errorf("%d samples in the ring, %d delivered", got, c[SamplesDelivered])
	}
	t.Logf("%d samples in user mode, %d in the kernel", inUser, inKernel)
	spin(t, func() bool { return processTime(t)-begin > 1e8 })
	if after, err := o.ReadCounts(); err != nil || after[SamplesAttempted] != c[SamplesAttempted] {
		t.Errorf("%d samples while it does not sample, %v", after[SamplesAttempted]-c[SamplesAttempted], err)
	}
}

// otherCPUs are all but one.
func otherCPUs(cpus, mine int) (others []int) {
	for cpu := range cpus {
		if cpu != mine {
			others = append(others, cpu)
		}
	}
	return others
}

// pin keeps the test on the CPU where it is.
func pin(t *testing.T) (cpu int) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for !before.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &before); err != nil {
			t.Error(err)
		}
	})
	return cpu
}

// processTime is the process's CPU time in ns.
func processTime(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}
