package attach

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// nop5 and nop10 are NOPs of that many bytes, to be probed.
func nop5()
func nop10()

// nops are their addresses.
func nops() (five, ten *byte)

// ReplacesNops reports whether the kernel replaces NOPs of several bytes once a probe on them was
// hit. It tries probes on two NOPs of this program, once, which takes a tenth of a second: kernels
// that do it have various versions, and replace various NOPs. It returns true if it cannot find
// out.
func ReplacesNops() bool {
	triedNops.once.Do(func() {
		replaced, err := tryNops()
		triedNops.replaced = replaced || err != nil
	})
	return triedNops.replaced
}

var triedNops struct {
	once     sync.Once
	replaced bool
}

// int3 is the first byte of a probed instruction that is not replaced.
const int3 = 0xcc

func tryNops() (replaced bool, err error) {
	u := NewUprobes()
	spec := &ebpf.ProgramSpec{
		Name: "vmprof_nops", Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	if u.Multi() {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		return false, err
	}
	defer program.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return false, err
	}
	defer self.Close()
	maps, err := proc.DefaultRoot.Maps(os.Getpid(), proc.Executable)
	if err != nil {
		return false, err
	}
	try := func(code *byte, execute func()) (replaced bool, err error) {
		address := uint64(uintptr(unsafe.Pointer(code)))
		m := maps.Find(address)
		if m == nil || !m.IsFile() {
			return false, fmt.Errorf("code at %#x of this process is in no file", address)
		}
		site := Site{Offset: address - m.Start + m.Offset, OwnsStack: true}
		links, err := u.Attach(self, os.Getpid(), program, []Site{site})
		if err != nil {
			return false, err
		}
		defer CloseLinks(links)
		for range 3 { // it replaces at the first hit, but the next ones cost little
			execute()
		}
		return *code != int3, nil
	}
	five, ten := nops()
	if replaced, err = try(five, nop5); replaced || err != nil {
		return replaced, err
	}
	replaced, err = try(ten, nop10)
	return replaced && err == nil, nil // kernels that do not replace it refuse a probe there for its prefix
}
