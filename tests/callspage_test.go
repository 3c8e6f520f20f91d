package tests

import (
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// TestCallsKilledPage: an agent that is killed while a guest is armed leaves it unarmed, and
// without a probe. The guest goes on, computes the same, and gets along with the next agent.
func TestCallsKilledPage(t *testing.T) {
	guest := startVM(t, "skewed")
	// Bursts this long are never over.
	run, err := built.Start(t.Context(), profiler.Options{PID: guest.Pid(), Frequency: 997, Extra: []string{
		"-e", "calls", "--engine=page", "--guest-socket", guest.socket, "--stride=10000", "--samples=100000",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitSampling(); err != nil {
		t.Fatal(err)
	}
	guest.waitForBursts(t)
	eventually(t, "the guest rests while it is armed", func() bool {
		guest.work(t, 20*time.Millisecond)
		return guest.armed(t) > 0
	})
	if patched(t, guest.Pid(), "vm") == 0 {
		t.Error("the agent put no probe into the guest, so this test cannot see one that is left")
	}
	run.Signal(syscall.SIGKILL)
	run.Wait() // it was killed

	eventually(t, "no slot is armed", func() bool { return guest.armed(t) == 0 })
	eventually(t, "the guest's code is as its file has it", func() bool { return patched(t, guest.Pid(), "vm") == 0 })
	guest.work(t, 100*time.Millisecond)
	if n := guest.armed(t); n != 0 {
		t.Errorf("%d slots are armed later", n)
	}
	alone := startVM(t, "skewed")
	if s, err := alone.Run(guest.iterations); err != nil || s.Checksum != guest.checksum {
		t.Errorf("checksum %s after %d iterations, without an agent %s, %v", guest.checksum, guest.iterations,
			s.Checksum, err)
	}
	recording, truth := guest.record(t)
	checkShares(t, callEdges(t, recording.Profile), truth, recording.Stats.Calls.Delivered)
}
