//go:build linux && amd64

package bpf

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"
)

// onPrivateStack is how a function begins on x86-64 whose stack is its CPU's: add gs:this_cpu_off,
// r9 (emit_priv_frame_ptr in arch/x86/net/bpf_jit_comp.c).
var onPrivateStack = []byte{0x65, 0x4c, 0x03, 0x0c, 0x25}

// What the kernel made of the programs that claim what is a CPU's runs on the stack of whoever hit
// the probe.
func TestKernelClaimingStack(t *testing.T) {
	private := func(p *ebpf.Program) bool {
		t.Helper()
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		code, ok := info.JitedInsns()
		if !ok || len(code) == 0 {
			t.Skip("the kernel does not show its machine code: sysctl net.core.bpf_jit_harden, kernel.kptr_restrict")
		}
		return bytes.Contains(code, onPrivateStack)
	}
	o := load(t, Options{})
	// The tick's stack is as large, it makes no tail call, and as it is not preempted it may be on
	// a stack of its CPU.
	if olderThan(t, 6, 13) {
		t.Skip("the kernel has no stacks per CPU: 6.13 has")
	}
	if !private(o.Tick) {
		t.Fatal("the tick's program is not on a stack of its CPU, so this test cannot see one that is")
	}
	for _, l := range []*probing{probings.take(t, Options{}, loadProbing),
		multiProbings.take(t, Options{}, loadMultiProbing)} {
		programs := reflect.ValueOf(l.p.ProbePrograms)
		for i := range programs.NumField() {
			if prog, ok := programs.Field(i).Interface().(*ebpf.Program); ok && private(prog) {
				t.Errorf("%v, %s, runs on a stack of its CPU", prog, programs.Type().Field(i).Name)
			}
		}
	}
}
