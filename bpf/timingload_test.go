//go:build linux

package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

// The program that times invocations passes the verifier, and loads without the agent's other
// objects. What it does is tested where breakpoints are set.
func TestKernelLoadTimings(t *testing.T) {
	o, err := LoadTimings()
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		for _, line := range refused.Log[max(0, len(refused.Log)-40):] {
			t.Log(line)
		}
	}
	needKernel(t, err)
	checkVerified(t, o.Breakpoint)
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
