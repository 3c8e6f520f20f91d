package attach

import (
	"os"
	"path/filepath"
	"testing"
)

// The kernels whose ring buffers interrupts must not write to.
func TestRingSleeps(t *testing.T) {
	for _, test := range []struct {
		name string
		k    preemption
		want bool
	}{
		{"not real-time, old lock", preemption{version: "#1 SMP PREEMPT_DYNAMIC Debian 6.1.90-1",
			release: "6.1.0-21-amd64", lock: "spinlock_t"}, false},
		{"voluntary", preemption{version: "#1 SMP", release: "6.1.0"}, false},
		{"not real-time by sysfs", preemption{realtime: "0\n", version: "#1 SMP PREEMPT", release: "6.1.0"}, false},
		{"Debian 12's real-time kernel", preemption{realtime: "1\n", version: "#1 SMP PREEMPT_RT Debian 6.1.90-1",
			release: "6.1.0-21-rt-amd64", lock: "spinlock_t"}, true},
		{"by sysfs alone", preemption{realtime: "1\n", version: "#1 SMP", release: "6.6.20", lock: "spinlock_t"}, true},
		{"by uname alone", preemption{version: "#1 SMP PREEMPT_RT", release: "6.6.20-rt1", lock: "spinlock_t"}, true},
		{"old spelling", preemption{version: "#1 SMP PREEMPT RT", release: "5.4.0-rt", lock: "spinlock_t"}, true},
		{"stable kernel with the fix", preemption{version: "#1 SMP PREEMPT_RT", release: "6.6.90-rt",
			lock: "raw_spinlock_t"}, false},
		{"6.12", preemption{version: "#1 SMP PREEMPT_RT", release: "6.12.0", lock: "raw_spinlock_t"}, false},
		{"newer, resilient lock", preemption{version: "#1 SMP PREEMPT_RT", release: "6.18.1", lock: "rqspinlock_t"},
			false},
		{"without types, old", preemption{version: "#1 SMP PREEMPT_RT", release: "6.11.4-rt"}, true},
		{"without types, 6.12", preemption{version: "#1 SMP PREEMPT_RT", release: "6.12.1"}, false},
		{"without types, 7.0", preemption{version: "#1 SMP PREEMPT_RT", release: "7.0.0"}, false},
		{"without anything", preemption{version: "#1 SMP PREEMPT_RT", release: "custom"}, true},
	} {
		if got := test.k.ringSleeps(); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// The type of the lock is found if the kernel has type information, and this kernel is accepted.
func TestKernelRingLock(t *testing.T) {
	needKernel(t)
	switch lock := ringLock(); lock {
	case "spinlock_t", "raw_spinlock_t", "rqspinlock_t":
		t.Log(lock)
	default:
		t.Errorf("lock %q", lock)
	}
	if err := CheckRing("/sys"); err != nil {
		t.Error(err)
	}
	// With a realtime kernel in sysfs, the lock is checked.
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "kernel"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "kernel/realtime"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err, sleeps := CheckRing(sys), ringLock() == "spinlock_t"; (err != nil) != sleeps {
		t.Errorf("%v, lock %s", err, ringLock())
	}
}
