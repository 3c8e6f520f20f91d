package hotspot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing/flowgraph"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on what is read of a JVM.
const (
	maxLibrary  = 1 << 30 // bytes of a libjvm; debug builds have 400 MB
	maxNamed    = 1 << 18 // methods whose names are remembered
	maxMethods  = 16      // methods of one name: class loaders have copies of their own
	maxOSR      = 16      // compilations that are entered in a loop of the method
	maxInliners = 1 << 14 // compilations that are searched for inlined copies, some 100 us each
	maxProfiled = 1 << 13 // methods whose profiles are read for copies without a trace, some 10 us each
	maxVanished = 3       // levels of calls that are followed into such copies
)

// A process is a JVM whose method is timed. Its methods are for one goroutine at a time.
type process struct {
	proc.Identity
	memory *proc.Memory
	vm     vmruntime.CallCounter
	method Method

	names    map[uint64]bool         // methods that were named, by address: whether it is the one
	methods  []uint64                // those that are the one, ascending
	searched map[uint32]*container   // compilations, by version; nil if the method is not inlined there
	osr      map[uint32]bool         // compilations of the method that are entered in loops, by version
	osrCode  []vmruntime.Compilation // those that are there now
	inlined  map[string]bool         // methods whose code has copies of it
	inside   []container             // those whose code has copies now
	copied   map[uint64]bool         // methods of which C2's code has copies
	forms    map[string]bool         // signatures with which the name was seen
	due      time.Duration           // CLOCK_MONOTONIC: of the next search
}

// A Method is a name as users write it: java.util.HashMap.get, with a signature if there are
// several of that name.
type Method struct{ Function, Signature string }

// ParseMethod understands java.util.HashMap.get, java.util.HashMap::get and both with a signature
// in the JVM's form.
func ParseMethod(text string) (Method, error) {
	name, signature, found := strings.Cut(text, "(")
	if found {
		signature = "(" + signature
	}
	m := Method{strings.ReplaceAll(strings.ReplaceAll(name, "::", "."), "/", "."), signature}
	if i := strings.LastIndexByte(m.Function, '.'); i <= 0 || i == len(m.Function)-1 || found &&
		!strings.Contains(signature, ")") {
		return m, fmt.Errorf("method %q: want class.method, or class.method(Ljava/lang/String;)V if there are several",
			text)
	}
	return m, nil
}

// String is the method as ParseMethod takes it.
func (m Method) String() string { return m.Function + m.Signature }

// attachProcess reads the tables of a JVM.
func attachProcess(
	ctx context.Context, root proc.Root, pool *proc.Pool, pid int, method Method,
) (_ *process, err error) {
	id, err := root.Identify(pid)
	if err != nil {
		return nil, err
	}
	libraries, err := librariesOf(ctx, root, pool, pid)
	if err != nil {
		return nil, err
	}
	if len(libraries) == 0 {
		return nil, fmt.Errorf("process %d is not a JVM: it maps no libjvm.so", pid)
	}
	lib := &libraries[0]
	image, bias, err := readLibrary(ctx, root, pool, pid, lib)
	if err != nil {
		return nil, err
	}
	memory, err := proc.OpenMemory(root, id, pool)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			memory.Close()
		}
	}()
	guest, err := image.Attach(vmruntime.Target{Memory: memory, Bias: bias})
	if err != nil {
		return nil, fmt.Errorf("attach to JVM %d: %w", pid, err)
	}
	vm, ok := guest.(vmruntime.CallCounter)
	if !ok {
		return nil, fmt.Errorf("process %d: its code cannot be listed: %w", pid, errors.ErrUnsupported)
	}
	return &process{
		Identity: id, memory: memory, vm: vm, method: method, names: map[uint64]bool{},
		searched: map[uint32]*container{}, osr: map[uint32]bool{},
		inlined: map[string]bool{}, copied: map[uint64]bool{}, forms: map[string]bool{},
	}, nil
}

// librariesOf are the VMs that a process maps: at most one in practice.
func librariesOf(ctx context.Context, root proc.Root, pool *proc.Pool, pid int) (proc.Maps, error) {
	table := runtimes.JVMs()
	return proc.Call(ctx, pool, pid, func() (proc.Maps, error) {
		return root.Maps(pid, func(m *proc.Mapping) bool {
			_, ok := bridge.Recognise(table, m.Path)
			return ok && m.Exec && m.IsFile()
		})
	})
}

// Serves reports whether a process is a JVM.
func Serves(ctx context.Context, root proc.Root, pid int) bool {
	libraries, err := librariesOf(ctx, root, proc.NewPool(proc.PoolOptions{}), pid)
	return err == nil && len(libraries) > 0
}

func readLibrary(
	ctx context.Context, root proc.Root, pool *proc.Pool, pid int, lib *proc.Mapping,
) (image vmruntime.Image, bias uint64, err error) {
	vm, _ := bridge.Recognise(runtimes.JVMs(), lib.Path)
	type library struct {
		image vmruntime.Image
		bias  uint64
	}
	read, err := proc.Call(ctx, pool, pid, func() (l library, err error) {
		f, err := root.OpenMapped(pid, lib, maxLibrary)
		if err != nil {
			return l, err
		}
		defer f.Close()
		file, err := elffile.OpenFile(f)
		if err != nil {
			return l, fmt.Errorf("read library of the VM: %w", err)
		}
		if l.bias, err = file.Bias(lib.Start, lib.Offset); err != nil {
			return l, err
		}
		l.image, err = vm.Image(file)
		return l, err
	})
	return read.image, read.bias, err
}

func (p *process) Close() error { return p.memory.Close() }

// versionName is a compilation for people.
func versionName(c *vmruntime.Compilation) string {
	name := fmt.Sprintf("#%d", c.Version)
	switch c.Tier {
	case vmruntime.TierNative:
		name += " native wrapper"
	case vmruntime.TierC2:
		name += " C2"
	case vmruntime.TierC1:
		name += fmt.Sprintf(" C1 level %d", c.Level)
	}
	if c.EntryBCI >= 0 {
		name += " OSR"
	}
	return name
}

func (p *process) version(c *vmruntime.Compilation) timing.Version {
	return timing.Version{PID: p.PID, ID: uint64(c.Version), Name: versionName(c)}
}

// Graph is a method's control flow as package flowgraph takes it. Its frequencies are those of the time
// in which the VM counted, before C2's code took over: as of warm-up.
func Graph(flow *vmruntime.MethodFlow) *flowgraph.Graph {
	g := &flowgraph.Graph{Blocks: make([]flowgraph.Block, len(flow.Blocks))}
	for i := range flow.Blocks {
		b := &flow.Blocks[i]
		g.Blocks[i] = flowgraph.Block{Freq: float64(b.Count), Cost: b.Cost, Successors: b.Successors}
	}
	return g
}
