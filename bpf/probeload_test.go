//go:build linux

package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

// The programs of probes pass the verifier, in both forms that kernels want them in.
func TestKernelLoadProbes(t *testing.T) {
	o := loadedObjects.take(t, Options{}, Load)
	for _, multi := range []bool{false, true} {
		if multi && olderThan(t, 6, 6) {
			t.Skip("the kernel has no uprobe.multi: 6.6 has")
		}
		p, err := o.LoadProbes(multi)
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			for _, line := range refused.Log[max(0, len(refused.Log)-40):] {
				t.Log(line)
			}
		}
		if err != nil {
			t.Fatalf("multi %v: %v", multi, err)
		}
		f, err := o.LoadFaults(p)
		if errors.As(err, &refused) {
			for _, line := range refused.Log[max(0, len(refused.Log)-40):] {
				t.Log(line)
			}
		}
		if err != nil {
			t.Fatalf("faults: %v", err)
		}
		f.Close()
		p.Close()
	}
}
