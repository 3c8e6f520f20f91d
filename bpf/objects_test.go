//go:build linux

package bpf

import (
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// objects are all that the agent loads, as they are for this machine.
var objects = map[string]func() (*ebpf.CollectionSpec, error){
	"profile": LoadProfile, "codemap": LoadCodeMap, "burst": LoadBurst, "listener": LoadListener, "branch": LoadBranch,
	"exact": LoadExact, "usdt": LoadUsdt, "probe": LoadProbe, "fault": LoadFault, "monitorenter": LoadMonitorEnter,
	"timing": LoadTiming, "kerneltick": LoadKernelTick, "context": LoadContext,
	"offcpu": LoadOffCPU, "invocation": LoadInvocation, "waiting": LoadWaiting, "runtime": LoadRunTime,
}

// loadedBy are tests that load the objects into a kernel as the agent does: the rig of old kernels
// runs them.
var loadedBy = map[string]func(*testing.T){
	"profile": TestKernelLoad, "codemap": TestKernelLoad, "burst": TestKernelBeside, "listener": TestKernelBeside,
	"branch": TestKernelBeside,
	"exact":  TestKernelBeside, "usdt": TestKernelBeside, "probe": TestKernelLoadProbes, "fault": TestKernelLoadProbes,
	"monitorenter": TestKernelLoadEnters,
	"timing":       TestKernelLoadTimings, "kerneltick": TestKernelTickSamples, "offcpu": TestKernelWaits,
	"context":    TestKernelLoad,
	"invocation": TestKernelBeside, "waiting": TestKernelStillWaiting, "runtime": TestKernelRunTimes,
}

func TestEveryObjectIsLoaded(t *testing.T) {
	for object := range objects {
		if loadedBy[object] == nil {
			t.Errorf("no test loads %s into a kernel", object)
		}
	}
}

// architectures that the agent is built for, as the names of objects have them.
var architectures = []string{"x86", "arm64"}

// specs are the objects for one architecture, by name.
func specs(t *testing.T, architecture string) map[string]*ebpf.CollectionSpec {
	t.Helper()
	suffix := "_" + architecture + "_bpfel.o"
	files, err := filepath.Glob("*" + suffix)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*ebpf.CollectionSpec{}
	for _, file := range files {
		name := strings.TrimSuffix(file, suffix)
		if objects[name] == nil {
			t.Errorf("%s is not tested", file)
		}
		if found[name], err = ebpf.LoadCollectionSpec(file); err != nil {
			t.Fatal(err)
		}
	}
	if len(found) != len(objects) {
		t.Errorf("%s: %d objects, want %d", architecture, len(found), len(objects))
	}
	return found
}

// everySpec calls f for all objects for all architectures.
func everySpec(t *testing.T, f func(t *testing.T, object string, spec *ebpf.CollectionSpec)) {
	for _, architecture := range architectures {
		for object, spec := range specs(t, architecture) {
			t.Run(object+" "+architecture, func(t *testing.T) { f(t, object, spec) })
		}
	}
}

func isUprobe(p *ebpf.ProgramSpec) bool { return p.Type == ebpf.Kprobe }

// What no program of this agent may do: change a guest, or another process.
var forbidden = map[asm.BuiltinFunc]string{
	asm.FnProbeWriteUser:   "writes a guest's memory",
	asm.FnOverrideReturn:   "changes what the kernel returns",
	asm.FnSendSignal:       "sends signals",
	asm.FnSendSignalThread: "sends signals",
	asm.FnGetStackid:       "walks user stacks in a way that races with uprobes",
}

func TestHelpers(t *testing.T) {
	everySpec(t, func(t *testing.T, object string, spec *ebpf.CollectionSpec) {
		for name, prog := range spec.Programs {
			for i, ins := range prog.Instructions {
				if !ins.IsBuiltinCall() {
					continue
				}
				fn := asm.BuiltinFunc(ins.Constant)
				if why, ok := forbidden[fn]; ok {
					t.Errorf("%s calls %v: %s", name, fn, why)
				}
				if fn != asm.FnGetStack {
					continue
				}
				// The kernel's own walk of user stacks crashed hosts that have uprobes (fixed in
				// 6.13).
				flags, ok := constantArgument(prog.Instructions[:i], asm.R4)
				// BPF_F_SKIP_FIELD_MASK at most
				atTick := object == "kerneltick" || object == "context" && name != "tick"
				kernelStack := atTick && (ok && flags == 0 || flags == 0xff)
				if !kernelStack && (!ok || flags != 0 || !(name == "tick" || object == "offcpu")) {
					t.Errorf("%s calls %v with flags %#x (constant: %v): only programs of ticks and of the scheduler "+
						"may, for stacks of the kernel", name, fn, flags, ok)
				}
			}
		}
	})
}

// constantArgument is the number that was last moved into reg, if that was a number.
func constantArgument(before asm.Instructions, reg asm.Register) (int64, bool) {
	for i := len(before) - 1; i >= 0; i-- {
		ins := before[i]
		if ins.OpCode.JumpOp() != asm.InvalidJumpOp {
			return 0, false
		}
		if ins.Dst == reg && (ins.OpCode.Class().IsALU() || ins.OpCode.Class().IsLoad()) {
			return ins.Constant, ins.OpCode.ALUOp() == asm.Mov && ins.OpCode.Source() == asm.ImmSource
		}
	}
	return 0, false
}

// bpf_probe_read_user is for GPL programs; a license that is missing would be noticed on the first
// host only.
func TestLicense(t *testing.T) {
	everySpec(t, func(t *testing.T, _ string, spec *ebpf.CollectionSpec) {
		for name, prog := range spec.Programs {
			if prog.License != "Dual BSD/GPL" {
				t.Errorf("license of %s is %q", name, prog.License)
			}
		}
	})
}

// atomics are the maps of counters: programs may be preempted while they count.
var atomics = map[string]bool{"counters": true, "exact_counters": true, "burst_costs": true, "probe_counts": true}

// claiming is the object whose programs claim what is a CPU's, and make tail calls so that the
// kernel gives them no stack per CPU: observe.bpf.h.
const claiming = "probe"

// Uprobe programs are preempted: a record that one reserved would hold up the whole stream until
// its thread runs again.
func TestUprobesReserveNothing(t *testing.T) {
	everySpec(t, func(t *testing.T, _ string, spec *ebpf.CollectionSpec) {
		for name, prog := range spec.Programs {
			for _, ins := range prog.Instructions {
				if isUprobe(prog) && ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnRingbufReserve {
					t.Errorf("%s reserves a record", name)
				}
			}
		}
	})
}

// interrupting are the programs of non-maskable interrupts, by object: a name of its programs, or
// "" for all.
var interrupting = map[string]string{"branch": "", "fault": "overflow"}

// A program that may interrupt another one while that has a ring's lock has a ring of its own.
func TestInterruptingRing(t *testing.T) {
	everySpec(t, func(t *testing.T, object string, spec *ebpf.CollectionSpec) {
		only, listed := interrupting[object]
		writers := 0
		for name, prog := range spec.Programs {
			own, others := "events", "nmi_events"
			if listed && (only == "" || only == name) {
				own, others = others, own
			}
			for _, ins := range prog.Instructions {
				switch ins.Reference() {
				case own:
					writers++
				case others:
					t.Errorf("%s uses %s", name, others)
				}
			}
		}
		if listed && writers == 0 {
			t.Error("no program writes to a ring")
		}
	})
}

// Uprobe programs are preempted: what is a CPU's is not theirs, unless they claim it.
func TestUprobesKeepNothingPerCPU(t *testing.T) {
	everySpec(t, func(t *testing.T, object string, spec *ebpf.CollectionSpec) {
		for name, prog := range spec.Programs {
			if !isUprobe(prog) {
				continue
			}
			if object == claiming {
				if !hasTailCall(prog) {
					t.Errorf("%s makes no tail call: it may run on a stack of its CPU", name)
				}
				continue
			}
			for _, ins := range prog.Instructions {
				used := ins.Reference()
				m := spec.Maps[used]
				if used == "scratches" || m != nil && strings.Contains(m.Type.String(), "PerCPU") && !atomics[used] {
					t.Errorf("%s uses %s, which is per CPU", name, used)
				}
				if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetSmpProcessorId {
					t.Errorf("%s asks for its CPU", name)
				}
			}
		}
	})
}

// hasTailCall reports whether the program itself, not only a function that it calls, makes a tail
// call.
func hasTailCall(prog *ebpf.ProgramSpec) bool {
	for i, ins := range prog.Instructions {
		if i > 0 && ins.Symbol() != "" {
			return false // the next function
		}
		if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnTailCall {
			return true
		}
	}
	return false
}

// Maps are what the programs share with Go, whose types are the same everywhere.
func TestMaps(t *testing.T) {
	want := specs(t, architectures[0])
	for _, architecture := range architectures[1:] {
		for object, spec := range specs(t, architecture) {
			if len(spec.Maps) != len(want[object].Maps) {
				t.Errorf("%s: %d maps for %s, want %d", object, len(spec.Maps), architecture, len(want[object].Maps))
			}
			for name, m := range spec.Maps {
				w := want[object].Maps[name]
				if w == nil {
					t.Errorf("%s: %s is there for %s only", object, name, architecture)
					continue
				}
				if m.Type != w.Type || m.KeySize != w.KeySize || m.ValueSize != w.ValueSize ||
					m.MaxEntries != w.MaxEntries {
					t.Errorf("%s: %s is %v for %s, want %v", object, name, m, architecture, w)
				}
			}
		}
	}
}

// The kernel's log names the stack of each function: in one line, and since Linux 7.3 in one for each.
var (
	stackDepth    = regexp.MustCompile(`stack depth ([0-9+]+)`)
	functionStack = regexp.MustCompile(`(?m)^subprog .* stack ([0-9]+)$`)
)

// A program with a function whose stack, rounded up to 16 bytes, takes this much may run on a stack
// of the CPU (BPF_PRIV_STACK_MIN_SIZE in kernel/bpf/verifier.c, since 6.13), which preemption
// corrupts.
const privateStack = 64

func TestKernelUprobeStack(t *testing.T) {
	for object, load := range objects {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		if object == claiming || !slices.ContainsFunc(slices.Collect(maps.Values(spec.Programs)), isUprobe) {
			continue
		}
		t.Run(object, func(t *testing.T) {
			spec.Maps["events"].MaxEntries = DefaultRingBytes
			coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
				Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
			})
			needKernel(t, err)
			defer coll.Close()
			for name, prog := range coll.Programs {
				if isUprobe(spec.Programs[name]) { // others are not preempted
					uprobeStack(t, name, prog.VerifierLog)
				}
			}
		})
	}
}

func uprobeStack(t *testing.T, name, log string) {
	t.Helper()
	var depths []string
	if m := stackDepth.FindStringSubmatch(log); m != nil {
		depths = strings.Split(m[1], "+")
	}
	for _, m := range functionStack.FindAllStringSubmatch(log, -1) {
		depths = append(depths, m[1])
	}
	if len(depths) == 0 {
		t.Errorf("%s: no stack depth in %q", name, log)
		return
	}
	t.Logf("%s: %s bytes of stack", name, depths)
	for _, n := range depths {
		depth, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		if (depth+15)/16*16 >= privateStack {
			t.Errorf("%s has a function with %d bytes of stack", name, depth)
		}
	}
}

// The objects of engines load beside the agent's, and take nothing of its with them.
func TestKernelBeside(t *testing.T) {
	o := load(t, Options{})
	beside := func(load func() (*ebpf.CollectionSpec, error), to io.Closer) (io.Closer, error) {
		spec, err := load()
		if err != nil {
			return nil, err
		}
		return to, o.LoadBeside(spec, to)
	}
	for object, load := range map[string]func() (io.Closer, error){
		"burst":    func() (io.Closer, error) { return beside(LoadBurst, new(BurstObjects)) },
		"listener": func() (io.Closer, error) { return beside(LoadListener, new(ListenerObjects)) },
		"branch":   func() (io.Closer, error) { return beside(LoadBranch, new(BranchObjects)) },
		"exact": func() (io.Closer, error) {
			return o.LoadExact(ExactOptions{PID: 1, Nodes: 100, Edges: 100, Threads: 2, Methods: 100})
		},
		"usdt":       func() (io.Closer, error) { return o.LoadUSDT() },
		"invocation": func() (io.Closer, error) { return o.LoadInvocations(nil) },
		"probe":      func() (io.Closer, error) { return o.LoadProbes() },
	} {
		t.Run(object, func(t *testing.T) {
			if object == "probe" && testing.Short() {
				t.Skip("other tests load it, and verifying it takes long")
			}
			loaded, err := load()
			needKernel(t, err)
			if err := loaded.Close(); err != nil {
				t.Error(err)
			}
			if _, err := o.ReadCounts(); err != nil {
				t.Errorf("the agent's maps went with the object: %v", err)
			}
		})
	}
}
