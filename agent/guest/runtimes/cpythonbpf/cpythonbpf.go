// Package cpythonbpf connects CPython to the kernel side: it puts where an interpreter has its
// threads, frames and code objects into the form that BPF programs have of it.
package cpythonbpf

import (
	"fmt"
	"runtime"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/cpython"
)

// Kernel implements bridge.Kernel.
type Kernel struct{}

// Usable returns an error on processors other than x86-64: where a thread has its identity is only
// known there.
func (Kernel) Usable() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("CPython: %w", bridge.ErrArchitecture)
	}
	return nil
}

// Sites returns none: CPython announces no code.
func (Kernel) Sites([]elffile.Probe) (attach.Sites, error) { return attach.Sites{}, nil }

// VM returns the records of a *cpython.Process.
func (Kernel) VM(p vmruntime.Process) (bridge.VM, error) {
	c, ok := p.(*cpython.Process)
	if !ok {
		return nil, fmt.Errorf("%s is not CPython", p.Describe())
	}
	return vm{c}, nil
}

// A vm is one interpreter.
type vm struct{ *cpython.Process }

func (v vm) Record() (*bpf.HotspotProcess, error) { return process(v.Layout()) }

func (vm) Heap() *bpf.HotspotHeap { return nil }

func (vm) Pending() bool { return false }

func (vm) Refresh() (changed bool, err error) { return false, nil }
