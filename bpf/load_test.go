//go:build linux

package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

func TestKernelLoad(t *testing.T) {
	o, err := Load(Options{})
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		n := max(0, len(ve.Log)-40)
		for _, l := range ve.Log[n:] {
			t.Log(l)
		}
	}
	needKernel(t, err)
	defer o.Close()
	for _, p := range []*ebpf.Program{o.Tick, o.ProcessExec} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.VerifiedInstructions()
		t.Logf("%s: %d instructions verified", info.Name, n)
	}
}
