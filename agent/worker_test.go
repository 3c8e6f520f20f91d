package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// TestStaleAgain: compiled code that seems to be gone is looked for again, a few times and with growing pauses. Meanwhile it is
// stale, and what was found once is not replaced by less.
func TestStaleAgain(t *testing.T) {
	a, _, _ := faultyAgent(t, "", 0)
	code := bpf.Frame(bpf.FrameJIT) << 60
	if code.Kind() != bpf.FrameJIT {
		t.Fatalf("%#x is no compiled frame", uint64(code))
	}
	p := sampled(a, 1)
	p.wanted = append(p.wanted, wanted{rawFrame: rawFrame{frame: code, kind: rawExact}})
	submit := func() {
		a.names.submit(p)
		a.names.wait(t.Context(), []*process{p}, waitLong)
	}
	submit()
	if len(p.names) != 2 {
		t.Fatalf("%d of 2 frames have names", len(p.names))
	}
	for tries := uint8(1); tries <= maxNameTries; tries++ {
		if len(p.wanted) != 1 || p.wanted[0].frame != code || p.wanted[0].tries != tries {
			t.Fatalf("wanted after %d tries: %+v", tries, p.wanted)
		}
		if pause := p.wanted[0].notBefore - monotonic(); tries > 1 && pause < nameAgain {
			t.Errorf("tried again in %v after %d tries", pause, tries)
		}
		submit() // too early
		if len(p.wanted) != 1 || p.wanted[0].tries != tries {
			t.Fatalf("tried too early: %+v", p.wanted)
		}
		p.wanted[0].notBefore = 0
		submit()
	}
	if len(p.wanted) != 0 || len(p.names) != 2 {
		t.Errorf("at last %d frames are wanted, %d have names", len(p.wanted), len(p.names))
	}
}
