// Package bridge defines how a runtime and the kernel side are connected: what BPF programs must
// know of a VM to walk its stacks, and which probes announce what happens to its code. One package
// for each runtime that needs it implements the interfaces; the table in package runtimes lists
// them. What uses the table names no runtime.
package bridge

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Runtime is a row of the table of runtimes.
type Runtime struct {
	vmruntime.Runtime
	// Kernel connects VMs of the runtime to the kernel side. A runtime that is recognised by a
	// library (vmruntime.Library) must have one. It is nil for a runtime that only maps code
	// (vmruntime.CodeMapper), whose code is walked like native code.
	Kernel Kernel
	// StacksOnly says that nothing but stacks and names is to be had of its VMs: no probes of events,
	// no objects, no calls.
	StacksOnly bool
}

// A Kernel connects one runtime to the kernel side.
type Kernel interface {
	// Usable returns why stacks of such VMs cannot be walked on this machine, wrapping
	// ErrArchitecture; nil if they can.
	Usable() error
	// Sites chooses, among the USDT probes of a VM's library, those that announce what happens to
	// code. The error says why the VM's code cannot be followed.
	Sites(probes []elffile.Probe) (attach.Sites, error)
	// VM returns the records of an attached process, which an Image of the same runtime made.
	VM(vmruntime.Process) (VM, error)
}

// A VM makes the kernel side's records of one process. Its methods are called from the goroutine
// that uses the process.
type VM interface {
	// Record returns the layout that the walker needs. The caller sets identity, slot, and the
	// flags about probes. A record is a union: all begin as HotSpot's does, and the rest is of the
	// VM that its flags say (bpf.CPythonRecord).
	Record() (*bpf.HotspotProcess, error)
	// Heap is what probes of events must know of objects, nil if that was not found out. The caller
	// sets the serial.
	Heap() *bpf.HotspotHeap
	// Pending reports whether the VM has yet to generate kinds of code that the walker must know.
	Pending() bool
	// Refresh looks for these, and reports whether Record has changed.
	Refresh() (changed bool, err error)
}

// ErrArchitecture says that stacks of a runtime's VMs cannot be walked on processors like this one.
var ErrArchitecture = errors.New("stacks are walked on x86-64 only, so far")

// Recognise returns the first runtime of a table that recognises the name of a mapped file as that
// of its VMs' library. ok is false if none does. Rows without a Kernel are passed over.
func Recognise(table []Runtime, file string) (r Runtime, ok bool) {
	for _, r := range table {
		if l, is := r.Runtime.(vmruntime.Library); is && r.Kernel != nil && l.Recognise(file) {
			return r, true
		}
	}
	return Runtime{}, false
}

// FindLibrary returns the mapping of the code of a VM that the table has, nil if there is none. If
// several are mapped, the first runtime of the table counts, and of that a library before a program,
// as the program may only load the library.
func FindLibrary(table []Runtime, maps proc.Maps) (found *proc.Mapping) {
	for i := range table {
		for j := range maps {
			m := &maps[j]
			if _, ok := Recognise(table[i:i+1], m.Path); !ok || !m.Exec {
				continue
			}
			if strings.Contains(path.Base(m.Path), ".so") {
				return m
			}
			if found == nil {
				found = m
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// Image reads the library of a VM that r recognised. The error says why it cannot be used.
func (r Runtime) Image(file *elffile.File) (vmruntime.Image, error) {
	image, err := r.Runtime.(vmruntime.Library).Image(file)
	if image == nil && err == nil {
		err = fmt.Errorf("its library is named like %s's, but belongs to another VM", r.Title())
	}
	return image, err
}

// CodeSites finds the probes with which a library announces what happens to code. The error says
// why the VM's code cannot be followed.
func (r Runtime) CodeSites(file *elffile.File) (attach.Sites, error) {
	probes, err := file.Probes()
	if err != nil {
		return attach.Sites{}, fmt.Errorf("read its probes: %w", err)
	}
	return r.Kernel.Sites(probes)
}
