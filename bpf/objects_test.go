//go:build linux

package bpf

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// specs are the objects that the agent loads, by name.
func specs(t *testing.T) map[string]*ebpf.CollectionSpec {
	t.Helper()
	profile, err := LoadProfile()
	if err != nil {
		t.Fatal(err)
	}
	codeMap, err := LoadCodeMap()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*ebpf.CollectionSpec{"profile": profile, "codemap": codeMap}
}

// What no program of this agent may do: change a guest, or another process.
var forbidden = map[asm.BuiltinFunc]string{
	asm.FnProbeWriteUser:   "writes a guest's memory",
	asm.FnOverrideReturn:   "changes what the kernel returns",
	asm.FnSendSignal:       "sends signals",
	asm.FnSendSignalThread: "sends signals",
	asm.FnGetStackid:       "walks user stacks in a way that races with uprobes",
}

func TestHelpers(t *testing.T) {
	for object, spec := range specs(t) {
		for name, prog := range spec.Programs {
			for i, ins := range prog.Instructions {
				if !ins.IsBuiltinCall() {
					continue
				}
				fn := asm.BuiltinFunc(ins.Constant)
				if why, ok := forbidden[fn]; ok {
					t.Errorf("%s: %s calls %v: %s", object, name, fn, why)
				}
				if fn != asm.FnGetStack {
					continue
				}
				// The kernel's own walk of user stacks crashed hosts that have uprobes (fixed in 6.13).
				if flags, ok := constantArgument(prog.Instructions[:i], asm.R4); !ok || flags != 0 || name != "tick" {
					t.Errorf("%s: %s calls %v with flags %#x (constant: %v): only tick may, with 0", object, name, fn, flags, ok)
				}
			}
		}
	}
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

// bpf_probe_read_user is for GPL programs; a license that is missing would be noticed on the first host only.
func TestLicense(t *testing.T) {
	for object, spec := range specs(t) {
		for name, prog := range spec.Programs {
			if prog.License != "Dual BSD/GPL" {
				t.Errorf("%s: license of %s is %q", object, name, prog.License)
			}
		}
	}
}

// Uprobe programs are preempted: what is per CPU is not theirs.
func TestUprobesKeepNothingPerCPU(t *testing.T) {
	spec := specs(t)["codemap"]
	for name, m := range spec.Maps {
		if strings.Contains(m.Type.String(), "PerCPU") && name != "counters" {
			t.Errorf("map %s is per CPU", name)
		}
	}
	for name, prog := range spec.Programs {
		if prog.Type != ebpf.Kprobe {
			t.Errorf("%s is a %v, not a uprobe", name, prog.Type)
		}
		for _, ins := range prog.Instructions {
			if ins.Reference() == "scratches" {
				t.Errorf("%s uses scratches", name)
			}
			if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetSmpProcessorId {
				t.Errorf("%s asks for its CPU", name)
			}
		}
	}
}

var stackDepth = regexp.MustCompile(`stack depth ([0-9+]+)`)

// A program with a function whose stack, rounded up to 16 bytes, takes this much may run on a stack of the CPU
// (BPF_PRIV_STACK_MIN_SIZE in kernel/bpf/verifier.c, since 6.13), which preemption corrupts.
const privateStack = 64

func TestKernelUprobeStack(t *testing.T) {
	spec := specs(t)["codemap"]
	spec.Maps["events"].MaxEntries = DefaultRingBytes
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats},
	})
	needKernel(t, err)
	defer coll.Close()
	for name, prog := range coll.Programs {
		m := stackDepth.FindStringSubmatch(prog.VerifierLog)
		if m == nil {
			t.Errorf("%s: no stack depth in %q", name, prog.VerifierLog)
			continue
		}
		t.Logf("%s: %s bytes of stack", name, m[1])
		for n := range strings.SplitSeq(m[1], "+") {
			depth, err := strconv.Atoi(n)
			if err != nil {
				t.Fatal(err)
			}
			if (depth+15)/16*16 >= privateStack {
				t.Errorf("%s has a function with %d bytes of stack", name, depth)
			}
		}
	}
}
