package attach

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A CPU that comes online while the agent samples is sampled, too. Only a machine of its own can
// have a CPU taken away.
func TestKernelHotplug(t *testing.T) {
	const cpu = 1
	// Only the emulated machine has this init.
	if init, err := os.Readlink("/proc/1/exe"); err != nil || init != "/init" || os.Getppid() != 1 {
		t.Skip("this machine is not the test's own: go run ./tests/kernels")
	}
	switchTo := func(online string) error {
		return os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(online), 0)
	}
	if err := switchTo("0"); err != nil {
		t.Skipf("no CPU can be taken offline: %v", err)
	}
	t.Cleanup(func() { _ = switchTo("1") })
	o, err := bpf.Load(bpf.Options{FilterByPID: true})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer o.Close()
	if err := o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	ticks, err := NewTicks(o.Tick, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer ticks.Close()
	if err := ticks.Start(); err != nil {
		t.Fatal(err)
	}
	if err := switchTo("1"); err != nil {
		t.Fatal(err)
	}
	if err := ticks.Refresh(); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
			return
		}
		for !stop.Load() {
			continue // keeps the CPU busy
		}
	}()
	wait.For(t, time.Minute, "samples on the CPU", func() bool {
		costs, err := o.TickCosts()
		if err != nil {
			t.Fatal(err)
		}
		return costs[cpu].Samples >= 20
	})
	counts, err := o.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d samples attempted, %d delivered, %d dropped", counts[bpf.SamplesAttempted], counts[bpf.SamplesDelivered],
		counts[bpf.SamplesDroppedNoScratch])
	if counts[bpf.SamplesDroppedNoScratch] != 0 {
		t.Errorf("%d samples dropped", counts[bpf.SamplesDroppedNoScratch])
	}
}
