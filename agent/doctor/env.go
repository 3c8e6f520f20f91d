package doctor

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/privilege"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An Env is what the checks look at: where the pseudo file systems are, and what can be tried on
// the kernel. Tests replace parts of it. The functions are called one after the other, but for
// UserName and Inspect: they are called for several processes at once, and while Tick, OffCPU and
// Engines are.
type Env struct {
	Proc    proc.Root
	Sys     string // where sysfs is
	Passwd  string // where the list of accounts is
	Program string // where the agent's program is

	Uname    func() (release, machine string, err error)
	Capable  func(cap.Value) (bool, error)             // reports whether the capability is in the effective set
	Without  func(c cap.Value, try func() error) error // tries without a capability
	Memlock  func() (bytes uint64, err error)
	UserName func(uid uint32) string

	LoadProgram    func() error // loads a program as the sampling programs are loaded
	MakeRingBuffer func() error
	CheckRing      func(sys string) error                     // checks real-time kernels: attach.CheckRing
	Memory         func() (samples, events uint64, err error) // bytes of the kernel: bpf.Memory
	UprobeMulti    func() error                               // ebpf.ErrNotSupported: the kernel has none

	// CPUs is one more than the highest CPU number. OpenEvent tries a sampling event on one of
	// them: unix.ENODEV means that this one is offline.
	CPUs      func() (int, error)
	OpenEvent func(cpu int) error

	Tick   TickTrial   // nil: the clocks are not reported
	OffCPU OffCPUTrial // nil: off-CPU time is not reported

	// Engines is nil if call engines are not checked; otherwise the fields below are also needed.
	Engines     EngineTrial
	GuestSocket string       // path to which cooperating guests connect
	MapPage     func() error // maps a page that is shared with guests

	Runtimes []bridge.Runtime // runtimes whose VMs are looked for
	Inspect  JVMInspector     // nil: JVMs are only listed
	Pool     *proc.Pool       // for reads of processes
}

// Host is the machine the program runs on. Tick, OffCPU, Engines and Inspect are nil, GuestSocket
// is empty.
func Host() *Env {
	program, err := os.Executable()
	if err != nil {
		program = "vmprof-agent"
	}
	return &Env{
		Runtimes:       runtimes.Table(),
		Proc:           proc.DefaultRoot,
		Sys:            "/sys",
		Passwd:         "/etc/passwd",
		Program:        program,
		Uname:          uname,
		Capable:        func(c cap.Value) (bool, error) { return cap.GetProc().GetFlag(cap.Effective, c) },
		Without:        privilege.Without,
		Memlock:        memlock,
		UserName:       userName,
		LoadProgram:    loadProgram,
		MakeRingBuffer: makeRingBuffer,
		CheckRing:      attach.CheckRing,
		Memory:         bpf.Memory,
		UprobeMulti:    features.HaveBPFLinkUprobeMulti,
		CPUs:           ebpf.PossibleCPU,
		OpenEvent:      openEvent,
		MapPage:        mapPage,
		Pool:           proc.NewPool(proc.PoolOptions{}),
	}
}

func uname() (release, machine string, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]), nil
}

func memlock() (uint64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	return limit.Cur, err
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// loadProgram loads a program that samples nothing but needs what the real ones need: the type, the
// GPL-only helpers, and the right to read kernel memory, which lockdown may refuse.
func loadProgram() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:    "vmprof_doctor",
		Type:    ebpf.PerfEvent,
		License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.RFP),
			asm.Add.Imm(asm.R1, -8),
			asm.Mov.Imm(asm.R2, 8),
			asm.Mov.Imm(asm.R3, 0),
			asm.FnProbeReadKernel.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	if err != nil {
		return err
	}
	return p.Close()
}

func makeRingBuffer() error {
	const ringBytes = 64 << 10 // a page, where pages are largest
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "vmprof_doctor", Type: ebpf.RingBuf, MaxEntries: ringBytes})
	if err != nil {
		return err
	}
	return m.Close()
}

// mapPage makes a page as guests get them, and maps it as they do.
func mapPage() error {
	const bytes = 4096 // struct vmprof_page of contrib/guest/vmprof.h
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "vmprof_doctor", Type: ebpf.Array, KeySize: 4, ValueSize: bytes, MaxEntries: 1,
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return err
	}
	defer m.Close()
	page, err := unix.Mmap(m.FD(), 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map page: %w", err)
	}
	return unix.Munmap(page)
}

// openEvent opens an event that samples all processes on one CPU, and closes it.
func openEvent(cpu int) error {
	attr := unix.PerfEventAttr{
		Type:   unix.PERF_TYPE_SOFTWARE,
		Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   unix.PERF_ATTR_SIZE_VER5,
		Sample: 99, // Hz, as PerfBitFreq says
		Bits:   unix.PerfBitFreq | unix.PerfBitDisabled,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
