// Package exactcalls records the exact calls of a running JVM, as ground truth for sampled call
// graphs. The JVM must be started with -XX:+DTraceMethodProbes.
//
//	session, err := exactcalls.Attach(pid)
//	defer session.Close()
//	... the guest runs ...
//	calls, err := session.Since(nil)
//	calls.Logical, calls.Physical, calls.Threads ...
package exactcalls

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// A Session records one JVM until it is closed. Only one goroutine at a time may use its methods.
type Session struct {
	objects  *bpf.Objects
	probes   *attach.Probes
	memory   *proc.Memory
	recorder *exact.Recorder
	names    *names
}

// maxLibrary bounds libjvm, in bytes.
const maxLibrary = 1 << 30

// Attach begins to record a JVM.
func Attach(pid int, opt exact.Options) (_ *Session, err error) {
	s := &Session{}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.objects, err = bpf.Load(bpf.Options{FilterByPID: true}); err != nil {
		return nil, err
	}
	vm, lib, sites, err := s.open(pid)
	if err != nil {
		return nil, err
	}
	defer lib.Close()
	if err := exact.Check(vm); err != nil {
		return nil, err
	}
	if s.names, err = newNames(s.objects, vm); err != nil {
		return nil, err
	}
	opt.PID = pid
	if s.recorder, err = exact.Start(s.objects, lib, sites, opt); err != nil {
		return nil, err
	}
	return s, nil
}

// open attaches to the VM and follows its code and classes.
func (s *Session) open(pid int) (*hotspot.Process, *os.File, exact.Sites, error) {
	fail := func(err error) (*hotspot.Process, *os.File, exact.Sites, error) { return nil, nil, exact.Sites{}, err }
	root := proc.DefaultRoot
	id, err := root.Identify(pid)
	if err != nil {
		return fail(err)
	}
	mapped, err := root.Maps(pid, proc.Executable)
	if err != nil {
		return fail(err)
	}
	mapping := library(mapped)
	if mapping == nil {
		return fail(fmt.Errorf("process %d maps no libjvm", pid))
	}
	lib, err := root.OpenMapped(pid, mapping, maxLibrary)
	if err != nil {
		return fail(err)
	}
	vm, sites, err := s.attach(id, mapping, lib)
	if err != nil {
		lib.Close()
		return fail(err)
	}
	return vm, lib, sites, nil
}

func library(maps proc.Maps) *proc.Mapping {
	for i := range maps {
		if strings.HasSuffix(maps[i].Path, "/libjvm.so") {
			return &maps[i]
		}
	}
	return nil
}

func (s *Session) attach(id proc.Identity, mapping *proc.Mapping, lib *os.File) (*hotspot.Process, exact.Sites, error) {
	fail := func(err error) (*hotspot.Process, exact.Sites, error) { return nil, exact.Sites{}, err }
	file, err := elffile.OpenFile(lib)
	if err != nil {
		return fail(err)
	}
	sites, err := exact.FindSites(file, lib)
	if err != nil {
		return fail(err)
	}
	image, err := hotspot.Runtime{}.Image(file)
	if err != nil {
		return fail(err)
	}
	if image == nil {
		return fail(errors.New("this libjvm is not HotSpot's"))
	}
	bias, err := file.Bias(mapping.Start, mapping.Offset)
	if err != nil {
		return fail(err)
	}
	if err := s.follow(file, lib); err != nil {
		return fail(err)
	}
	if s.memory, err = proc.OpenMemory(proc.DefaultRoot, id, proc.NewPool(proc.PoolOptions{})); err != nil {
		return fail(err)
	}
	attached, err := image.Attach(vmruntime.Target{Memory: s.memory, Bias: bias, Epoch: s.epoch})
	if err != nil {
		return fail(err)
	}
	vm := attached.(*hotspot.Process)
	k := layout(vm.Layout())
	k.StartTicks, k.Serial, k.Flags = id.Ticks(), 1, k.Flags|bpf.HotspotUnloadEvents
	return vm, sites, s.objects.Processes.Update(uint32(id.PID), k, ebpf.UpdateAny)
}

// follow informs the kernel side when code and classes are unloaded.
func (s *Session) follow(file *elffile.File, lib *os.File) error {
	found, err := file.Probes()
	if err != nil {
		return err
	}
	var sites attach.Sites
	for _, p := range found {
		site := attach.Site{Offset: p.Offset, RefCtrOffset: p.SemaphoreOffset}
		switch p.Name {
		case javavm.ProbeCodeUnload:
			sites.CodeUnload = append(sites.CodeUnload, site)
		case javavm.ProbeClassUnload:
			sites.ClassUnload = append(sites.ClassUnload, site)
		}
	}
	s.probes = attach.NewProbes(s.objects)
	_, err = s.probes.Attach(lib, sites)
	return err
}

// epoch is how many times the VM has unloaded classes.
func (s *Session) epoch() uint32 {
	var e bpf.Epochs
	if err := s.objects.Epochs.Lookup(uint32(0), &e); err != nil {
		return ^uint32(0)
	}
	return e.Classes
}

// layout is the description of the VM for exact tracing.
func layout(l *javavm.Layout) *bpf.HotspotProcess {
	k := &bpf.HotspotProcess{
		CodeLow: l.Cache.Low, CodeHigh: l.Cache.High,
		InterpreterLow: l.Interpreter.Low, InterpreterHigh: l.Interpreter.High,
		SegmentShift: uint32(l.Cache.SegmentShift), BlockHeader: l.Cache.BlockHeaderSize,
		NameNmethod: l.Kinds.NMethod, NameNative: l.Kinds.Native,
		BlobName: l.Blob.Name, BlobFrameSize: l.Blob.FrameSize, BlobCompileId: l.Blob.CompileID,
		MethodConst: l.Method.ConstMethod, ConstMethodSize: l.Method.ConstMethodSize,
		InterpMethod: l.Interpreter.Method, InterpSenderSp: l.Interpreter.SenderSP, InterpBcp: l.Interpreter.Bytecode,
	}
	for i, heap := range l.Cache.Heaps[:min(len(l.Cache.Heaps), len(k.Heaps))] {
		k.Heaps[i] = bpf.CodeHeap{Low: heap.Low, High: heap.High, SegmentMap: heap.Segmap}
	}
	return k
}

// Close ends recording and frees all resources.
func (s *Session) Close() error {
	var errs []error
	if s.recorder != nil {
		errs = append(errs, s.recorder.Close())
	}
	if s.names != nil {
		errs = append(errs, s.names.close())
	}
	if s.probes != nil {
		errs = append(errs, s.probes.Close())
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
	}
	if s.objects != nil {
		errs = append(errs, s.objects.Close())
	}
	return errors.Join(errs...)
}
