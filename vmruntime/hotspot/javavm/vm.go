// Package javavm has what all readers of one HotSpot VM share: its memory, the build of libjvm that it runs,
// its version, its threads, and the layout that the kernel side must know.
//
//	build, err := javavm.NewBuild(libjvm)                      // nil, nil for another VM's libjvm.so
//	v := javavm.New(build, target)
//	v.Resolve(resolver)                                    // where the fields are, by the VM's tables
//	err = v.ReadVersion()
//	threads, err := v.Threads()
//
// Files:
//
//	vm                     a VM that is attached
//	build, version         one libjvm: its symbols and probes; the release, and what goes by it
//	layout, threadlayout   what the kernel side must know; the part of it about threads and frames
//	threads                the VM's list of threads
//	cache                  what was read, up to a number of bytes
package javavm

import (
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A VM is one VM that is being attached, or is attached. What reads more of it embeds it.
type VM struct {
	Memory  vmstructs.Reader
	Build   *Build
	Bias    uint64        // what addresses of the build's file are below those in the process
	Epoch   func() uint32 // how many times classes were unloaded; nil if unknown
	Version Version
	Layout  Layout
	notes   []string

	Method methodinfo.Schema
	Thread ThreadSchema
	Flags  vmstructs.FlagSchema

	release versionSchema
}

// New is the VM of a process that runs that build.
func New(of *Build, guest vmruntime.Target) *VM {
	return &VM{
		Memory: vmstructs.Reader{Mem: &vmstructs.Weave{Memory: guest.Memory}},
		Build:  of, Bias: guest.Bias, Epoch: guest.Epoch,
	}
}

// Resolve looks up the fields that the VM's methods, threads and flags have.
func (p *VM) Resolve(r *vmstructs.Resolver) {
	p.Method, p.Thread, p.Flags = methodinfo.NewSchema(r), newThreadSchema(r), vmstructs.NewFlagSchema(r)
	p.release = newVersionSchema(r)
}

// ReadVersion reads the VM's version. It is an error if the release is not supported, and
// ErrStarting if the VM has not set it yet.
func (p *VM) ReadVersion() (err error) {
	p.Version, err = readVersion(p.Memory, &p.release)
	p.Layout.JDK = p.Version.JDK
	if err == nil && !p.Version.tested() {
		p.Note(fmt.Sprintf("This agent is not tested with JDK %d.", p.Version.JDK))
	}
	return err
}

// Note adds a sentence to Notes.
func (p *VM) Note(sentence string) { p.notes = append(p.notes, sentence) }

// Notes are what a reader of this guest's profile must know, one sentence each.
func (p *VM) Notes() []string { return slices.Concat(p.notes, p.Layout.Missing) }

// MethodReader reads the VM's methods.
func (p *VM) MethodReader() methodinfo.Reader {
	return methodinfo.Reader{Reader: p.Memory, Schema: &p.Method, Bias: p.Version.Unsigned5Bias()}
}

// NoteMissing notes in the layout what the VM hides.
func (p *VM) NoteMissing(sentence string) { p.Layout.Missing = append(p.Layout.Missing, sentence) }

// LibraryBounds are the addresses between which libjvm is.
func (p *VM) LibraryBounds() [2]uint64 {
	return [2]uint64{p.Build.Low + p.Bias, p.Build.High + p.Bias}
}

// UpcallName is the address of the name of stubs for upcalls, 0 if it is unknown.
func (p *VM) UpcallName() uint64 {
	if p.Build.upcallName == 0 {
		return 0
	}
	return p.Bias + p.Build.upcallName
}

// Symbol returns the address of a symbol of libjvm in this process.
func (p *VM) Symbol(name string) (uint64, bool) {
	value, ok := p.Build.Symbols[name]
	return value + p.Bias, ok
}

// CurrentEpoch is how many times classes were unloaded; always 0 if that is not known.
func (p *VM) CurrentEpoch() uint32 {
	if p.Epoch == nil {
		return 0
	}
	return p.Epoch()
}

// Describe names the VM and its version: "OpenJDK 64-Bit Server VM 17.0.15+6".
func (p *VM) Describe() string { return p.Version.String() }

// FeatureRelease is that of the JDK: 8, 17, 25.
func (p *VM) FeatureRelease() int { return p.Version.JDK }

// Flag reads a command line flag of type bool.
func (p *VM) Flag(name string) (bool, error) { return vmstructs.ReadBool(p.Memory, &p.Flags, name) }

// Number reads a command line flag of type intx.
func (p *VM) Number(name string) (int64, error) {
	return vmstructs.ReadNumber(p.Memory, &p.Flags, name)
}
