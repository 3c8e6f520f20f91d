package attach

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// FiltersByPID reports whether a uprobe.multi link with a process id sees all threads of the
// process. Before Linux 6.6.35, 6.9.5 and 6.10 it sees the first one only (kernel commit
// 46ba0e49b642). It tries that once, with a probe on a function of this program that another thread
// calls, which takes a tenth of a second. It returns false if it cannot find out, and where links
// are not used: then programs run for all processes that map the file, and have to look at the
// process id themselves.
func (u Uprobes) FiltersByPID() bool {
	if u.single {
		return false
	}
	triedPID.once.Do(func() {
		hits, err := u.hitsOfSecondThread(os.Getpid())
		triedPID.works = err == nil && hits > 0
	})
	return triedPID.works
}

var triedPID struct {
	once  sync.Once
	works bool
}

// called is what a probe is put on for the trial.
//
//go:noinline
func called() {}

// calledSite returns where called is, in the file of this program.
func calledSite() (self *os.File, site Site, err error) {
	maps, err := proc.DefaultRoot.Maps(os.Getpid(), proc.Executable)
	if err != nil {
		return nil, site, err
	}
	address := uint64(reflect.ValueOf(called).Pointer())
	m := maps.Find(address)
	if m == nil || !m.IsFile() {
		return nil, site, fmt.Errorf("code at %#x of this process is in no file", address)
	}
	self, err = os.Open("/proc/self/exe")
	return self, Site{Offset: address - m.Start + m.Offset, OwnsStack: true}, err
}

// hitsOfSecondThread returns how often a probe on called that is confined to the process pid runs
// when a thread of this process that is not the first one calls the function once.
func (u Uprobes) hitsOfSecondThread(pid int) (hits uint64, err error) {
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Name: "vmprof_hits", Type: ebpf.Array, KeySize: 4, ValueSize: 8,
		MaxEntries: 1})
	if err != nil {
		return 0, err
	}
	defer counter.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "vmprof_pid", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: countRuns(counter),
	})
	if err != nil {
		return 0, err
	}
	defer program.Close()
	self, site, err := calledSite()
	if err != nil {
		return 0, err
	}
	defer self.Close()
	links, err := u.attachMulti(self, pid, program, []Site{site})
	if err != nil {
		return 0, err
	}
	defer CloseLinks(links)
	onSecondThread(called)
	err = counter.Lookup(uint32(0), &hits)
	return hits, err
}

// countRuns is a program that adds 1 to the only value of a map of one value of 8 bytes.
func countRuns(counter *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counter.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}
}

// onSecondThread calls f once on a thread that is not the first one of this process, and waits for
// it.
func onSecondThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onSecondThread(f) // while this goroutine keeps the first thread
			return
		}
		f()
	}()
	<-done
}
