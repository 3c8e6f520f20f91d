//go:build linux && amd64

package hitcost

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
)

// Each loop runs the given number of times, and has the instruction of its kind.
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

// An emulated instruction costs a fraction of a stepped one, which is why sites are chosen by kind.
func TestLiveMeasure(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("needs root")
	}
	stepped, err := Measure(probesite.Stepped, nil, Options{Hits: 300})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %v", probesite.Stepped, stepped)
	for _, l := range loops {
		cost, err := Measure(l.kind, nil, Options{Hits: 300})
		if err != nil {
			t.Errorf("%v: %v", l.kind, err)
			continue
		}
		t.Logf("%v: %v", l.kind, cost)
		// A step is at least two traps, and other programs may disturb either measurement.
		if l.kind.Emulated() && (cost <= 0 || cost > stepped*3/4) {
			t.Errorf("a hit on a %v takes %v, a step %v: it is not emulated", l.kind, cost, stepped)
		}
	}
}
