//go:build linux && amd64

package hitcost

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
)

// Each loop runs as often as it is told, and has the instruction that it is for.
func TestLoops(t *testing.T) {
	for _, l := range loops {
		run, addr, err := loopOf(l.kind)
		if err != nil {
			t.Errorf("%v: %v", l.kind, err)
			continue
		}
		if addr == 0 {
			t.Errorf("%v: no address", l.kind)
		}
		run(1)
		begin := time.Now()
		run(50_000_000)
		if took := time.Since(begin); took < 5*time.Millisecond || took > 10*time.Second {
			t.Errorf("%v: 50 million turns took %v", l.kind, took)
		}
	}
	if _, _, err := loopOf(probesite.Refused); !errors.Is(err, ErrKind) {
		t.Errorf("a kind without a loop: %v", err)
	}
}

// What the kernel emulates costs a fraction of what it steps. That is the whole point of choosing.
func TestLiveMeasure(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("needs root")
	}
	stepped, err := Measure(probesite.Stepped, attach.Uprobe{}, Options{Hits: 300})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %v", probesite.Stepped, stepped)
	for _, l := range loops {
		cost, err := Measure(l.kind, attach.Uprobe{}, Options{Hits: 300})
		if err != nil {
			t.Errorf("%v: %v", l.kind, err)
			continue
		}
		t.Logf("%v: %v", l.kind, cost)
		// A step is two traps at least, and other programs may disturb the one or the other measurement.
		if l.kind.Emulated() && (cost <= 0 || cost > stepped*3/4) {
			t.Errorf("a hit on a %v takes %v, a step %v: it is not emulated", l.kind, cost, stepped)
		}
	}
}
