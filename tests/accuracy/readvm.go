package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// A readVM is a running JVM whose methods are read. It must not unload classes meanwhile.
type readVM struct {
	*hotspot.Process
	memory *proc.Memory
}

// openVM attaches to a JVM.
func openVM(pid int) (*readVM, error) {
	root := proc.DefaultRoot
	id, err := root.Identify(pid)
	if err != nil {
		return nil, err
	}
	mapped, err := root.Maps(pid, func(m *proc.Mapping) bool {
		return m.Exec &&
			strings.HasSuffix(m.Path, "/libjvm.so")
	})
	if err != nil {
		return nil, err
	}
	if len(mapped) == 0 {
		return nil, fmt.Errorf("process %d maps no libjvm", pid)
	}
	const maxLibrary = 1 << 30
	lib, err := root.OpenMapped(pid, &mapped[0], maxLibrary)
	if err != nil {
		return nil, err
	}
	defer lib.Close()
	file, err := elffile.OpenFile(lib)
	if err != nil {
		return nil, err
	}
	image, err := hotspot.Runtime{}.Image(file)
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, errors.New("this libjvm is not HotSpot's")
	}
	bias, err := file.Bias(mapped[0].Start, mapped[0].Offset)
	if err != nil {
		return nil, err
	}
	memory, err := proc.OpenMemory(root, id, proc.NewPool(proc.PoolOptions{}))
	if err != nil {
		return nil, err
	}
	vm, err := image.Attach(vmruntime.Target{Memory: memory, Bias: bias, Epoch: func() uint32 { return 0 }})
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	return &readVM{vm.(*hotspot.Process), memory}, nil
}

func (vm *readVM) close() error { return vm.memory.Close() }

// An executedMethod is a method that the interpreter has run. A method that compilers inlined
// before that is missing.
type executedMethod struct {
	addr   uint64
	name   string // with its signature
	size   int    // bytes of its bytecode; 0 of a native method, -1 if unknown
	native bool
}

// executed returns the methods that have run so far.
func (vm *readVM) executed() (executed []executedMethod, err error) {
	methods, err := vm.Methods()
	if err != nil {
		return nil, err
	}
	counts, _, err := vm.Counts(methods)
	if err != nil {
		return nil, err
	}
	var places []vmruntime.Scope
	for _, m := range counts {
		if m.Data == 0 && m.Before == 0 {
			continue
		}
		places = append(places, vmruntime.Scope{Method: m.Method, BCI: -1})
	}
	frames, err := vm.Names(places)
	if err != nil {
		return nil, err
	}
	for i, place := range places {
		e := executedMethod{addr: place.Method, name: frames[i].Function + frames[i].Signature}
		switch flow, err := vm.Flow(place.Method); {
		case err != nil: // it has more blocks than are read
			e.size = -1
		case len(flow.Blocks) == 0:
			e.native = true
		default:
			e.size = flow.Blocks[len(flow.Blocks)-1].End
		}
		executed = append(executed, e)
	}
	return executed, nil
}
