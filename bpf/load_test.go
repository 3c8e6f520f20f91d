//go:build linux

package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

// The verifier follows each way of taking contexts apart: what a constant switches off is not there
// for it.
func TestKernelLoad(t *testing.T) {
	for _, test := range []struct {
		name string
		opts Options
	}{
		{"walk", Options{}},
		{"partial", Options{Contexts: ModePartial}},
		{"partial, checked", Options{Contexts: ModePartial, CheckContexts: true}},
		{"chain", Options{Contexts: ModeChain}},
		{"chain, checked", Options{Contexts: ModeChain, CheckContexts: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := Load(test.opts)
			var ve *ebpf.VerifierError
			if errors.As(err, &ve) {
				n := max(0, len(ve.Log)-40)
				for _, l := range ve.Log[n:] {
					t.Log(l)
				}
			}
			needKernel(t, err)
			defer o.Close()
			checkVerified(t, o.Tick, o.ProcessExec)
		})
	}
}
