package attach

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// What is missed twice counts once, and a window has its part of each gap.
func TestGaps(t *testing.T) {
	now := proc.Monotonic()
	ticks := &Ticks{}
	ticks.miss(1, now-8*time.Second)
	ticks.miss(2, now-2*time.Second)
	ticks.miss(1, now-time.Second)
	got, err := ticks.Gaps(now-6*time.Second, now-time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := []Gap{{1, now - 6*time.Second, now - time.Second}, {2, now - 2*time.Second, now - time.Second}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for cpu := range 2 * maxGaps {
		ticks.miss(3+cpu, 0)
	}
	if len(ticks.gaps) > maxGaps {
		t.Errorf("%d gaps are kept", len(ticks.gaps))
	}
}

// An event that the kernel has stopped, as it does when a CPU goes offline, is replaced by one that
// counts, and what it missed is a gap. The other CPUs have none.
func TestDeadEvent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("sampling takes privileges")
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.PerfEvent, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	ticks, err := NewTicks(prog, 19)
	if err != nil {
		t.Fatal(err)
	}
	defer ticks.Close()
	if err := ticks.Start(); err != nil {
		t.Fatal(err)
	}
	began := proc.Monotonic()
	const cpu = 0
	stopped := ticks.cpus[cpu]
	if err := unix.IoctlSetInt(stopped.fd, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
		t.Fatal(err)
	}
	var gaps []Gap
	wait.For(t, wait.Long, "the event that does not count is found", func() bool {
		if gaps, err = ticks.Gaps(began, proc.Monotonic()); err != nil {
			t.Fatal(err)
		}
		return len(gaps) > 0
	})
	if len(gaps) != 1 || gaps[0].CPU != cpu || gaps[0].Ended-gaps[0].Began < maxLag/2 {
		t.Fatalf("gaps %v, want one of CPU %d that is as long as the event did not count", gaps, cpu)
	}
	again := ticks.cpus[cpu]
	if again == stopped || again == nil {
		t.Fatal("the event that does not count is still there")
	}
	wait.For(t, wait.Long, "the new event counts", func() bool {
		ran, err := again.counted()
		if err != nil {
			t.Fatal(err)
		}
		return ran > 0
	})
	if err := ticks.Stop(); err != nil && !errors.Is(err, unix.ENODEV) {
		t.Fatal(err)
	}
	if after, err := ticks.Gaps(began, proc.Monotonic()); err != nil || len(after) != 1 {
		t.Errorf("gaps %v, %v: of an event that was stopped in order there is none", after, err)
	}
}
