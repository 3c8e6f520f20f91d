//go:build linux

package bpf

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
)

// The program behind breakpoints on monitor enters passes the verifier. What it does is tested
// where breakpoints are set.
func TestKernelLoadEnters(t *testing.T) {
	l := probings.take(t, Options{}, loadProbing)
	enters, err := l.o.LoadEnters(l.p.Heaps)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		for _, line := range refused.Log[max(0, len(refused.Log)-40):] {
			t.Log(line)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer enters.Close()
	checkVerified(t, enters.MonitorEnter)
	// A ring of its own: nothing that it tells may arrive among the agent's samples.
	if enters.Events.MaxEntries() == l.o.Events.MaxEntries() || enters.Counters.FD() == l.o.Counters.FD() {
		t.Error("the object shares the agent's stream")
	}
	const longest = unsafe.Sizeof(ProfileSample{}) + unsafe.Sizeof(ProbeObservation{})
	if worst := MaxEnterWalks * longest; worst > enterRingBytes {
		t.Errorf("the contexts of one window may take %d bytes, the stream has %d", worst, enterRingBytes)
	}
}
