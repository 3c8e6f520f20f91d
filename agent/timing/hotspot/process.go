package hotspot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/timing/place"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on what is read of a JVM.
const (
	maxLibrary  = 1 << 30 // bytes of a libjvm; debug builds have 400 MB
	maxNamed    = 1 << 18 // methods whose names are remembered
	maxMethods  = 16      // of the same name: class loaders have copies of their own
	maxOSR      = 16      // compilations that are entered in a loop of the method
	maxInliners = 1 << 14 // compilations that are searched for inlined copies, some 100 us each
)

// A process is a JVM whose method is timed. Its methods are for one goroutine at a time.
type process struct {
	proc.Identity
	memory *proc.Memory
	vm     vmruntime.CallCounter
	method Method

	names    map[uint64]bool         // methods that were named, by address: whether it is the one
	methods  []uint64                // those that are the one, ascending
	searched map[uint32]bool         // compilations, by version: whether the method is inlined there
	osr      map[uint32]bool         // compilations of the method that are entered in loops, by version
	osrCode  []vmruntime.Compilation // those that are there now
	inlined  map[string]bool         // methods whose code has copies of it
	forms    map[string]bool         // signatures with which the name was seen
}

// A Method is a name as users write it: java.util.HashMap.get, with a signature if there are several of that name.
type Method struct{ Function, Signature string }

// ParseMethod understands java.util.HashMap.get, java.util.HashMap::get and both with a signature in the JVM's form.
func ParseMethod(text string) (Method, error) {
	name, signature, found := strings.Cut(text, "(")
	if found {
		signature = "(" + signature
	}
	m := Method{strings.ReplaceAll(strings.ReplaceAll(name, "::", "."), "/", "."), signature}
	if i := strings.LastIndexByte(m.Function, '.'); i <= 0 || i == len(m.Function)-1 || found && !strings.Contains(signature, ")") {
		return m, fmt.Errorf("method %q: want class.method, or class.method(Ljava/lang/String;)V if there are several", text)
	}
	return m, nil
}

// String is the method as ParseMethod takes it.
func (m Method) String() string { return m.Function + m.Signature }

// attachProcess reads the tables of a JVM.
func attachProcess(ctx context.Context, root proc.Root, pool *proc.Pool, pid int, method Method) (_ *process, err error) {
	id, err := root.Identify(pid)
	if err != nil {
		return nil, err
	}
	libraries, err := librariesOf(ctx, root, pool, pid)
	if err != nil {
		return nil, err
	}
	if len(libraries) == 0 {
		return nil, fmt.Errorf("process %d is no JVM: it maps no libjvm.so", pid)
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
		Identity: id, memory: memory, vm: vm, method: method, names: map[uint64]bool{}, searched: map[uint32]bool{}, osr: map[uint32]bool{},
		inlined: map[string]bool{}, forms: map[string]bool{},
	}, nil
}

// librariesOf are the VMs that a process maps: at most one in practice.
func librariesOf(ctx context.Context, root proc.Root, pool *proc.Pool, pid int) (proc.Maps, error) {
	table := runtimes.Table()
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

func readLibrary(ctx context.Context, root proc.Root, pool *proc.Pool, pid int, lib *proc.Mapping) (image vmruntime.Image, bias uint64, err error) {
	vm, _ := bridge.Recognise(runtimes.Table(), lib.Path)
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

// search walks all compilations, for copies of the method that are new. That takes milliseconds per thousand of them.
func (p *process) search() error {
	var all []vmruntime.Compilation
	if err := p.vm.Compilations(func(c vmruntime.Compilation) bool {
		all = append(all, c)
		return true
	}); err != nil {
		return err
	}
	if err := p.nameMethods(all); err != nil {
		return err
	}
	p.osrCode = p.osrCode[:0]
	for i := range all {
		c := &all[i]
		if p.names[c.Method] && c.EntryBCI >= 0 {
			p.osr[c.Version] = true
			if len(p.osrCode) < maxOSR {
				p.osrCode = append(p.osrCode, *c)
			}
		}
		p.searchInlined(c)
	}
	return nil
}

// nameMethods names the methods of compilations that have no name yet.
func (p *process) nameMethods(all []vmruntime.Compilation) error {
	if len(p.names) > maxNamed {
		clear(p.names)
	}
	var places []vmruntime.Scope
	asked := map[uint64]bool{}
	for i := range all {
		m := all[i].Method
		if _, known := p.names[m]; !known && !asked[m] {
			asked[m] = true
			places = append(places, vmruntime.Scope{Method: m})
		}
	}
	const chunk = 1024
	for part := range slices.Chunk(places, chunk) {
		frames, err := p.vm.Names(part)
		if err != nil {
			return err
		}
		for i := range frames {
			if frames[i].Function != "" {
				p.names[part[i].Method] = p.is(&frames[i])
			}
		}
	}
	var methods []uint64
	for m, is := range p.names {
		if is && len(methods) < maxMethods {
			methods = append(methods, m)
		}
	}
	slices.Sort(methods)
	p.methods = methods
	if len(p.forms) > 1 && p.method.Signature == "" {
		return &AmbiguousError{p.method, slices.Sorted(maps.Keys(p.forms))}
	}
	return nil
}

func (p *process) is(f *vmruntime.Frame) bool {
	if f.Function != p.method.Function {
		return false
	}
	p.forms[f.Signature] = true
	return p.method.Signature == "" || f.Signature == p.method.Signature
}

// An AmbiguousError says that a class has several methods of the name.
type AmbiguousError struct {
	Method     Method
	Signatures []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("there are several methods %s: add the signature of one, as in %s%s (others: %s)", e.Method.Function, e.Method.Function,
		e.Signatures[0], strings.Join(e.Signatures[1:], ", "))
}

// searchInlined notes whether a compilation of another method contains this one.
func (p *process) searchInlined(c *vmruntime.Compilation) {
	if _, done := p.searched[c.Version]; done || c.Native() || !c.InUse || len(p.methods) == 0 || len(p.searched) >= maxInliners {
		return
	}
	tree, err := p.vm.InlineTree(*c)
	if err != nil {
		return // it went away, or it is looked at again
	}
	found := false
	for _, n := range tree.Nodes[1:] {
		found = found || slices.Contains(p.methods, n.Method)
	}
	p.searched[c.Version] = found
	if !found {
		return
	}
	if frames, err := p.vm.Names([]vmruntime.Scope{{Method: c.Method}}); err == nil && frames[0].Function != "" {
		p.inlined[fmt.Sprintf("%s (%s)", frames[0].Function, versionName(c))] = true
	}
}

// current returns the code that calls of the method enter now: one compilation for each copy of the method.
func (p *process) current() (list []vmruntime.Compilation, err error) {
	if len(p.methods) == 0 {
		return nil, nil
	}
	found, err := p.vm.Current(p.methods)
	if err != nil {
		return nil, err
	}
	for _, c := range found {
		if c.InUse && c.EntryBCI < 0 && c.VerifiedEntry != 0 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b vmruntime.Compilation) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// still reports whether calls enter a compilation now. Numbers of compilations are never used again, so if that was so before and
// after a window it was so all the time.
func (p *process) still(c *vmruntime.Compilation) bool {
	found, err := p.vm.Current([]uint64{c.Method})
	now, ok := found[c.Method]
	return err == nil && ok && now.Version == c.Version && now.VerifiedEntry == c.VerifiedEntry && now.InUse
}

// exists reports whether a compilation is still where it was: threads may run in it, whether or not calls enter it.
func (p *process) exists(c *vmruntime.Compilation) bool {
	now, err := p.vm.Compilation(vmruntime.Site{Kind: vmruntime.Compiled, PC: c.Begin, Version: c.Version})
	return err == nil && now.Begin == c.Begin && now.End == c.End
}

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

// notes are what a reader of timings must know about what they do not contain.
func (p *process) notes() (notes []string) {
	const shown = 5
	if len(p.inlined) > 0 {
		names := slices.Sorted(maps.Keys(p.inlined))
		more := ""
		if n := len(names) - shown; n > 0 {
			names, more = names[:shown], fmt.Sprintf(" and %d more", n)
		}
		notes = append(notes, fmt.Sprintf("process %d: %s is inlined into %s%s; calls there have no entry and are not timed", p.PID, p.method, strings.Join(names, ", "), more))
	}
	if len(p.osr) > 0 {
		notes = append(notes, fmt.Sprintf("process %d: %s has %d OSR versions, which are entered in the middle of a loop: invocations are not timed there", p.PID, p.method, len(p.osr)))
	}
	if len(p.methods) == 0 {
		notes = append(notes, fmt.Sprintf("process %d: no compiled code of %s was found: it is interpreted, inlined everywhere, or not called", p.PID, p.method))
	}
	return notes
}

// searchPause is how long to wait between searches that take so long.
func searchPause(took time.Duration) time.Duration { return max(time.Second, 100*took) }

// Graph is a method's control flow as package place takes it. Its frequencies are those of the time in which the VM counted, before C2's
// code took over: as of warm-up.
func Graph(flow *vmruntime.MethodFlow) *place.Graph {
	g := &place.Graph{Blocks: make([]place.Block, len(flow.Blocks))}
	for i := range flow.Blocks {
		b := &flow.Blocks[i]
		g.Blocks[i] = place.Block{Freq: float64(b.Count), Cost: b.Cost, Successors: b.Successors}
	}
	return g
}

// flow reads the control flow of the method, of its first copy.
func (p *process) flow() (*vmruntime.MethodFlow, error) {
	reader, ok := p.vm.(vmruntime.FlowReader)
	if !ok || len(p.methods) == 0 {
		return nil, fmt.Errorf("control flow of %s: %w", p.method, vmruntime.ErrUnknown)
	}
	return reader.Flow(p.methods[0])
}
