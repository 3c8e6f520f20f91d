package stacks

import (
	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Works are the kinds of work in the order in which a summary lists them.
var Works = []string{
	profile.GuestCode.String(), Python, Compiled, profile.Compiling.String(), profile.Collecting.String(),
	profile.Housekeeping.String(),
	profile.NativeCode.String(), profile.KernelCode.String(),
}

// Code of other VMs than HotSpot: CPython's own, and what any other one compiled.
const (
	Python   = "Python"
	Compiled = "compiled"
)

// VMWork is the VM's own work that a sample is of; false if it is of none. Threads with the VM's
// names that run Java code are the application's.
func VMWork(sample *pprof.Sample) (profile.CodeKind, bool) {
	kind, ok := profile.VMThread(Label(sample, stored.LabelRuntime), Label(sample, stored.LabelThread))
	if !ok {
		return 0, false
	}
	for _, loc := range sample.Location {
		if MappingFlags(loc.Mapping)&(JIT|Interpreted|Stub) != 0 {
			return 0, false
		}
	}
	return kind, true
}

// Work is the kind of work that a sample is of.
func (s *Samples) Work(sample *pprof.Sample) string {
	if kind, ok := VMWork(sample); ok {
		return kind.String()
	}
	if len(sample.Location) == 0 {
		return profile.NativeCode.String()
	}
	return WorkOf(MappingFlags(sample.Location[0].Mapping), Label(sample, stored.LabelRuntime))
}

// WorkOf is the kind of work that a method is, in a process with that label of its runtime.
func WorkOf(flags Flags, runtime string) string {
	switch {
	case flags&Kernel != 0:
		return profile.KernelCode.String()
	case flags&(JIT|Interpreted|Stub) == 0:
		return profile.NativeCode.String()
	case runtime == "hotspot":
		return profile.GuestCode.String()
	case runtime == "cpython":
		return Python
	}
	return Compiled
}

// ServiceFrame stands for all frames of samples of the VM's own work.
func ServiceFrame(work string) Frame {
	name := "[" + work + " threads]"
	return Frame{Method: Method{Name: name, SystemName: name}, Flags: Native | Called}
}
