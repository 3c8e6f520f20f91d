//go:build linux

package bpf

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const helperVariable = "VMPROF_BPF_TEST_HELPER"

// TestHelperProcess is no test but what the children of tests below run: it waits until its
// standard input is closed, executes itself once more, waits again, and ends with some threads
// running.
func TestHelperProcess(t *testing.T) {
	step := os.Getenv(helperVariable)
	if step == "" {
		return
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	if step == "1" {
		err := unix.Exec("/proc/self/exe", os.Args, []string{helperVariable + "=2"})
		t.Fatal(err)
	}
	for range 8 {
		go func() {
			for {
				_, _ = unix.Ppoll(nil, nil, nil)
			}
		}()
	}
}

// A child of a chosen process is followed from its birth to its end, and an attached VM is
// forgotten when its process becomes another program.
func TestKernelProcesses(t *testing.T) {
	// Package os tries out what the kernel can do when it starts its first child, in children of
	// its own.
	if err := exec.Command("/proc/self/exe", "-test.run=^$").Run(); err != nil {
		t.Fatal(err)
	}
	o := load(t, Options{})
	for _, p := range []*ebpf.Program{o.ProcessFork, o.ProcessExec, o.ProcessExit} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		needKernel(t, err)
		defer l.Close()
	}
	child := exec.Command("/proc/self/exe", "-test.run=^TestHelperProcess$")
	child.Env = []string{helperVariable + "=1"}
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := uint32(child.Process.Pid)
	seen := uint64(0)
	expect := func(kind uint8) (event ProcessEvent) {
		t.Helper()
		seen++
		spin(t, func() bool { // the child goes on while we look
			c, err := o.ReadCounts()
			if err != nil {
				t.Fatal(err)
			}
			return c[EventsDelivered] >= seen
		})
		var events []ProcessEvent
		drain(t, o, func(raw []byte) {
			e, err := DecodeProcess(raw)
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, *e)
		})
		if len(events) != 1 || events[0].Header.Kind != kind || events[0].Header.Pid != pid {
			t.Fatalf("events %+v, want one of kind %d of process %d", events, kind, pid)
		}
		return events[0]
	}
	attached := func() bool {
		err := o.Processes.Lookup(pid, &HotspotProcess{})
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	attach := func() {
		if err := o.Processes.Put(pid, &HotspotProcess{Serial: 1}); err != nil {
			t.Fatal(err)
		}
	}

	first := expect(EventProcessExec).Header
	attach()
	if _, err := stdin.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	second := expect(EventProcessExec).Header
	if attached() {
		t.Error("a VM is attached in a process that executed another program")
	}
	if second.Start != first.Start || second.Exec != first.Exec+1 || second.Time <= first.Time {
		t.Errorf("the same process is %+v, then %+v", first, second)
	}
	attach()
	stdin.Close()
	if _, err := io.ReadAll(stdout); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	last := expect(EventProcessExit)
	if last.Header.Start != first.Start || last.Header.Exec != second.Exec {
		t.Errorf("the process that ended is %+v, was %+v", last.Header, second)
	}
	if attached() {
		t.Error("a VM is attached in a process that ended")
	}
	if err := o.Pids.Lookup(pid, new(uint8)); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("a process that ended is still chosen: %v", err)
	}
}
