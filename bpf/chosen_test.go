//go:build linux

package bpf

import (
	"os"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf/link"
)

// A child of a chosen process that finds no room in the table is counted: it is not sampled.
func TestKernelChosenFull(t *testing.T) {
	o := load(t, Options{})
	l, err := link.AttachTracing(link.TracingOptions{Program: o.ProcessFork})
	needKernel(t, err)
	defer l.Close()
	if n := o.Pids.MaxEntries(); n != MaxChosen {
		t.Fatalf("room for %d processes, want %d", n, MaxChosen)
	}
	refused := func() uint64 {
		if err := exec.Command("/proc/self/exe", "-test.run=^$").Run(); err != nil {
			t.Fatal(err)
		}
		c, err := o.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		return c[ProcessesRefused]
	}
	if n := refused(); n != 0 {
		t.Fatalf("%d processes found no room where there is enough", n)
	}
	for pid := uint32(1 << 30); ; pid++ { // no process has it
		if err := o.Pids.Put(pid, uint8(1)); err != nil {
			break
		}
	}
	if err := o.Pids.Lookup(uint32(os.Getpid()), new(uint8)); err != nil {
		t.Fatal(err)
	}
	if n := refused(); n == 0 {
		t.Error("a child that found no room was not counted")
	}
}
