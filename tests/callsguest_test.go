package tests

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// buildVM builds the reference guest, beside the agent under test.
var buildVM = sync.OnceValues(func() (guests.VM, error) {
	return guests.BuildVM(context.Background(), filepath.Dir(built.Path))
})

// A vm is a running reference guest that looks for the agent at a socket of its own.
type vm struct {
	*guests.VMRun
	socket     string
	iterations int    // so far
	checksum   string // checksum of these iterations
}

// startVM starts the reference guest, and ends it with the test.
func startVM(t *testing.T, program string) *vm {
	t.Helper()
	needs.Root(t, "sampling")
	built, err := buildVM()
	if errors.Is(err, guests.ErrNoCompiler) {
		needs.Missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &vm{socket: output(t, "guest.sock")}
	if g.VMRun, err = built.Start(context.WithoutCancel(t.Context()),
		guests.VMOptions{Program: program, Socket: g.socket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// waitForBursts has the guest work until its calls are sampled.
func (g *vm) waitForBursts(t *testing.T) {
	t.Helper()
	if err := g.WaitForAgent(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guest's calls are sampled", func() bool {
		g.work(t, 20*time.Millisecond)
		sampled, err := g.Sampled()
		if err != nil {
			t.Fatal(err)
		}
		return sampled
	})
}

// armed counts the threads that the agent has armed.
func (g *vm) armed(t *testing.T) (armed int) {
	t.Helper()
	slots, err := g.Slots()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slots {
		if s.Armed != 0 {
			armed++
		}
	}
	return armed
}

// work has the guest iterate for that long.
func (g *vm) work(t *testing.T, d time.Duration) {
	t.Helper()
	s, err := g.RunFor(d)
	if err != nil {
		t.Fatal(err)
	}
	g.iterations, g.checksum = g.iterations+int(s.Iterations), s.Checksum
}

// args are what the agent needs to sample the guest's calls in bursts of 7x32.
func (g *vm) args(more ...string) []string {
	return append([]string{"--engine=page", "--guest-socket", g.socket, "--stride=7", "--samples=32", "-F", "200"},
		more...)
}

// record records calls of the guest while it works, and returns them with the truth.
func (g *vm) record(t *testing.T) (*profiler.Recording, *guests.VMGraph) {
	t.Helper()
	run, err := built.Start(t.Context(), profiler.Options{PID: g.Pid(), Extra: g.args("-e", "calls")})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.WaitSampling(); err != nil {
		t.Fatal(err)
	}
	g.waitForBursts(t)
	if _, err := g.Graph(); err != nil { // Drop what was before.
		t.Fatal(err)
	}
	// By its CPU time, as bursts are.
	before := cpuTime(t, g.Pid())
	eventually(t, "the guest works for a second of CPU time", func() bool {
		g.work(t, 250*time.Millisecond)
		return cpuTime(t, g.Pid())-before >= time.Second
	})
	recording, err := run.Stop()
	if err != nil {
		t.Fatal(err)
	}
	truth, err := g.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		t.Error(err)
	}
	return recording, truth
}
