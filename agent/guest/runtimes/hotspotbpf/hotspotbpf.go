// Package hotspotbpf connects HotSpot to the kernel side: it puts the layout of a VM's code,
// threads and heap into the form that BPF programs have of it, and finds the USDT probes with which
// a VM announces what happens to its code.
package hotspotbpf

import (
	"fmt"
	"runtime"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// Kernel implements bridge.Kernel.
type Kernel struct{}

// Usable returns an error on processors other than x86-64: the walker's rules for HotSpot frames
// are for that one.
func (Kernel) Usable() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("HotSpot: %w", bridge.ErrArchitecture)
	}
	return nil
}

// VM returns the records of a *hotspot.Process.
func (Kernel) VM(p vmruntime.Process) (bridge.VM, error) {
	h, ok := p.(*hotspot.Process)
	if !ok {
		return nil, fmt.Errorf("%s is not HotSpot", p.Describe())
	}
	return vm{h}, nil
}

// A vm is one HotSpot process.
type vm struct{ *hotspot.Process }

func (v vm) Record() (*bpf.HotspotProcess, error) { return process(v.Layout()) }

func (v vm) Heap() *bpf.HotspotHeap {
	l := v.Layout()
	if !l.HasObjects {
		return nil // said among what the layout lacks
	}
	return heap(l)
}

func (v vm) Pending() bool { return len(v.Layout().Pending) > 0 }
