//go:build linux

package bpf

import "testing"

// The programs of probes pass the verifier, in both forms that kernels want them in.
func TestKernelLoadProbes(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		l := probings.take(t, Options{}, loadProbing)
		faults := l.faults(t)
		checkVerified(t, l.p.Observe, l.p.ParkEnd, faults.PageFault, faults.Overflow)
	})
	t.Run("multi", func(t *testing.T) {
		if olderThan(t, 6, 6) {
			t.Skip("the kernel has no uprobe.multi: 6.6 has")
		}
		multiProbings.take(t, Options{}, loadMultiProbing)
	})
}
