package report

import (
	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// hotspotRuntime is the label of processes whose compiled code is Java's.
const hotspotRuntime = "hotspot"

// works are the kinds of work in the order in which a summary lists them.
var works = []string{
	profile.GuestCode.String(), workCompiled, profile.Compiling.String(), profile.Collecting.String(), profile.Housekeeping.String(),
	profile.NativeCode.String(), profile.KernelCode.String(),
}

// workCompiled is code that another VM than HotSpot compiled.
const workCompiled = "compiled"

// vmWork is the VM's own work that a sample is of; false if it is of none. Threads with the VM's names that run Java code are the
// application's.
func vmWork(sample *pprof.Sample) (profile.CodeKind, bool) {
	kind, ok := profile.VMThread(label(sample, stored.LabelRuntime), label(sample, stored.LabelThread))
	if !ok {
		return 0, false
	}
	for _, loc := range sample.Location {
		if mappingFlags(loc.Mapping)&(jit|interpreted|stub) != 0 {
			return 0, false
		}
	}
	return kind, true
}

// work is the kind of work that a sample is of.
func (s *stacks) work(sample *pprof.Sample) string {
	if kind, ok := vmWork(sample); ok {
		return kind.String()
	}
	if len(sample.Location) == 0 {
		return profile.NativeCode.String()
	}
	return workOf(mappingFlags(sample.Location[0].Mapping), label(sample, stored.LabelRuntime) == hotspotRuntime)
}

// workOf is the kind of work that a method is.
func workOf(flags frameFlags, java bool) string {
	switch {
	case flags&kernel != 0:
		return profile.KernelCode.String()
	case flags&(jit|interpreted|stub) == 0:
		return profile.NativeCode.String()
	case java:
		return profile.GuestCode.String()
	}
	return workCompiled
}

// serviceFrame stands for all frames of samples of the VM's own work.
func serviceFrame(work string) storedFrame {
	name := "[" + work + " threads]"
	return storedFrame{Method: Method{Name: name, SystemName: name}, flags: native | called}
}
