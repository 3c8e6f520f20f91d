package stacks

import (
	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// HotSpot is the label of processes whose compiled code is Java's.
const HotSpot = "hotspot"

// Works are the kinds of work in the order in which a summary lists them.
var Works = []string{
	profile.GuestCode.String(), Compiled, profile.Compiling.String(), profile.Collecting.String(),
	profile.Housekeeping.String(),
	profile.NativeCode.String(), profile.KernelCode.String(),
}

// Compiled is code that another VM than HotSpot compiled.
const Compiled = "compiled"

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
	return WorkOf(MappingFlags(sample.Location[0].Mapping), Label(sample, stored.LabelRuntime) == HotSpot)
}

// WorkOf is the kind of work that a method is.
func WorkOf(flags Flags, java bool) string {
	switch {
	case flags&Kernel != 0:
		return profile.KernelCode.String()
	case flags&(JIT|Interpreted|Stub) == 0:
		return profile.NativeCode.String()
	case java:
		return profile.GuestCode.String()
	}
	return Compiled
}

// ServiceFrame stands for all frames of samples of the VM's own work.
func ServiceFrame(work string) Frame {
	name := "[" + work + " threads]"
	return Frame{Method: Method{Name: name, SystemName: name}, Flags: Native | Called}
}
