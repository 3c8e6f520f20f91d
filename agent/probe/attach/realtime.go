package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// ErrRingSleeps: sampling could hang or crash this machine.
var ErrRingSleeps = errors.New("this kernel is PREEMPT_RT and the lock of its BPF ring buffer sleeps, but the " +
	"interrupts that " +
	"sample must not sleep: boot Linux 6.12 or newer, or a stable kernel with the fix of CVE-2024-50138, or one " +
	"without PREEMPT_RT")

// CheckRing fails with ErrRingSleeps if programs of interrupts must not write to a BPF ring buffer
// on this kernel. sys is where sysfs is.
func CheckRing(sys string) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("uname: %w", err)
	}
	realtime, _ := os.ReadFile(filepath.Join(sys, "kernel/realtime")) // only PREEMPT_RT kernels have it
	k := preemption{realtime: string(realtime), version: unix.ByteSliceToString(u.Version[:]),
		release: unix.ByteSliceToString(u.Release[:])}
	if k.isRealtime() { // for others a megabyte of type information need not be read
		k.lock = ringLock()
	}
	if k.ringSleeps() {
		return ErrRingSleeps
	}
	return nil
}

// ringLock returns the type of the lock of BPF ring buffers, "" if the kernel's type information
// does not have it.
func ringLock() string {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return ""
	}
	var ring *btf.Struct
	if err := kernel.TypeByName("bpf_ringbuf", &ring); err != nil {
		return ""
	}
	for _, m := range ring.Members {
		if m.Name == "spinlock" {
			return m.Type.TypeName()
		}
	}
	return ""
}

// A preemption is a kernel's information on its kind of preemption.
type preemption struct {
	realtime string // content of /sys/kernel/realtime
	version  string // uname -v
	release  string // uname -r
	lock     string // type of bpf_ringbuf.spinlock
}

func (k preemption) isRealtime() bool {
	return strings.TrimSpace(k.realtime) == "1" || strings.Contains(k.version, "PREEMPT_RT") ||
		strings.Contains(k.version, "PREEMPT RT")
}

// ringSleeps reports whether bpf_ringbuf_reserve may sleep. With PREEMPT_RT a spinlock_t does. The
// ring buffer has had a raw_spinlock_t since 6.12, later an rqspinlock_t, and stable kernels got
// the former, too: so its type decides. If the type is unknown, the version decides.
func (k preemption) ringSleeps() bool {
	switch {
	case !k.isRealtime():
		return false
	case k.lock != "":
		return k.lock == "spinlock_t"
	}
	var major, minor int
	if n, _ := fmt.Sscanf(k.release, "%d.%d", &major, &minor); n < 2 {
		return true
	}
	return major < 6 || major == 6 && minor < 12
}
