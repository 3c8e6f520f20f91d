package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/doctor"
	"github.com/vmprof-agent/vmprof-agent/agent/events"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxLibrary bounds the library of a VM in bytes; debug builds with symbols have 400 MB.
const maxLibrary = 1 << 30

// A library is what the file of a VM's library contains.
type library struct {
	image    vmruntime.Image
	segments elffile.Segments
	walked   error // why stacks cannot be walked on this machine
	probes   error // why what it compiles and unloads is not announced
	monitors error // why waits for monitors cannot be recorded
	parks    error // why those of java.util.concurrent cannot
}

// inspector returns what attaches to a VM of one of the runtimes as recording does, and lets go of it again.
func inspector(root proc.Root, pool *proc.Pool, table []bridge.Runtime) doctor.JVMInspector {
	return func(ctx context.Context, pid int, lib *proc.Mapping) (doctor.Inspection, error) {
		id, err := root.Identify(pid)
		if err != nil {
			return doctor.Inspection{}, err
		}
		l, err := proc.Call(ctx, pool, pid, func() (library, error) { return readLibrary(root, pid, lib, table) })
		if err != nil {
			return doctor.Inspection{}, err
		}
		bias, err := l.segments.Bias(lib.Start, lib.Offset)
		if err != nil {
			return doctor.Inspection{}, err
		}
		mem, err := proc.OpenMemory(root, id, pool)
		if err != nil {
			return doctor.Inspection{}, err
		}
		defer mem.Close()
		vm, err := l.image.Attach(vmruntime.Target{Memory: mem, Bias: bias})
		if err != nil {
			return doctor.Inspection{}, err
		}
		return doctor.Inspection{VM: vm.Describe(), Supports: supports(&l), Notes: vm.Notes()}, nil
	}
}

// readLibrary runs on a worker of the pool: the file may lie on a file system that does not answer.
func readLibrary(root proc.Root, pid int, lib *proc.Mapping, table []bridge.Runtime) (l library, err error) {
	vm, ok := bridge.Recognise(table, lib.Path)
	if !ok {
		return l, fmt.Errorf("%s is not a library of a VM", lib.Path)
	}
	f, err := root.OpenMapped(pid, lib, maxLibrary)
	if err != nil {
		return l, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return l, fmt.Errorf("read library of the VM: %w", err)
	}
	file, err := elffile.Open(f, st.Size())
	if err != nil {
		return l, fmt.Errorf("read library of the VM: %w", err)
	}
	image, err := vm.Image(file)
	if err != nil {
		return l, err
	}
	l = library{image: image, segments: file.Segments(), walked: vm.Kernel.Usable()}
	_, l.probes = vm.CodeSites(file)
	l.monitors, l.parks = events.LockProbes(file, f)
	return l, nil
}

// supports says what works with a JVM that could be attached to.
func supports(l *library) []doctor.Support {
	java := doctor.Support{Feature: "Java frames", OK: l.walked == nil}
	if !java.OK {
		java.Reason = oneLine(l.walked)
	}
	inlining := java
	inlining.Feature = "inlining"
	live := doctor.Support{Feature: "live updates", OK: l.probes == nil}
	if !live.OK {
		live.Reason = oneLine(l.probes) + ": what is compiled while the agent runs may have no names"
	}
	monitors := doctor.Support{Feature: "waits for monitors", OK: l.monitors == nil}
	if !monitors.OK {
		monitors.Reason = oneLine(l.monitors)
	}
	parks := doctor.Support{Feature: "waits of java.util.concurrent", OK: l.parks == nil}
	if !parks.OK {
		parks.Reason = oneLine(l.parks)
	}
	return []doctor.Support{java, inlining, live, monitors, parks}
}

// oneLine is the text of an error that may be several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
