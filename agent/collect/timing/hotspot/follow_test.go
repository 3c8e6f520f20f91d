//go:build linux && amd64

package hotspot

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestReturns(t *testing.T) {
	code := []byte{
		0x55,                   // push rbp
		0x48, 0x83, 0xec, 0x10, // sub rsp, 16
		0xb8, 0xc3, 0xc3, 0xc3, 0xc3, // mov eax, 0xc3c3c3c3
		0xc3,             // ret
		0x90,             // nop
		0xc2, 0x08, 0x00, // ret 8
		0x06, // nothing in 64-bit mode
		0xc3,
	}
	if got, want := returnsIn(code, 0x1000), []uint64{0x100a, 0x100c}; !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// Each call is seen from its entry to its return, for longer than breakpoints stand that nobody
// refills. What is called too often is refused.
func TestLiveFollower(t *testing.T) {
	needs.Root(t, "hardware breakpoints")
	breakpoints.Need(t)
	for _, test := range []struct {
		name   string
		rounds int
		share  float64
		hot    bool
	}{
		{"followed", 300_000, 0.5, false},
		{"too often", 1_000, 0.01, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := startTimed(t, needs.JDK(t), "work", test.rounds, 1)
			m, err := ParseMethod("Timed.work")
			if err != nil {
				t.Fatal(err)
			}
			objects, err := bpf.Load(bpf.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer objects.Close()
			kernel, err := objects.LoadInvocations(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer kernel.Close()
			f, err := OpenFollower(t.Context(), Options{PIDs: []int{g.PID()}, Method: m,
				Breakpoints: breakpoint.Always, Share: test.share}, kernel)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			counts := func() bpf.InvocationCounts { return f.Counts()[g.PID()] }
			if err := wait.Until(t.Context(), wait.Long, "calls are followed, or refused", func() (bool, error) {
				if test.hot {
					return f.Err() != nil, nil
				}
				return counts().Returned > 0, f.Err()
			}); err != nil {
				t.Fatalf("%s: nothing is followed: %v, %v", test.name, err, f.Notes())
			}
			if test.hot {
				if err := f.Err(); !strings.Contains(err.Error(), "is called too often to be followed") {
					t.Errorf("%s: %v", test.name, err)
				}
				return
			}
			vm, err := attachProcess(t.Context(), proc.DefaultRoot, proc.NewPool(proc.PoolOptions{}), g.PID(), m)
			if err != nil {
				t.Fatal(err)
			}
			defer vm.Close()
			var last bpf.InvocationCounts
			var got, least, most float64
			// Calls of new code are not seen until it is found: what counts is a time without new
			// code.
			for versions := -1; versions != len(f.Code(g.PID()).Versions); {
				versions = len(f.Code(g.PID()).Versions)
				// The program goes on while it is asked: it is asked before and after.
				before := callsOf(t, g)
				first := counts()
				after := callsOf(t, g)
				last = first
				if err := wait.Until(t.Context(), wait.Long, "calls that take refills", func() (bool, error) {
					last = counts()
					return last.Entered-first.Entered >= 2*breakpoint.MaxHits, f.Err()
				}); err != nil {
					t.Fatalf("%s: %+v, %v", test.name, last, err)
				}
				least = callsOf(t, g) - after
				last = counts()
				most = callsOf(t, g) - before
				got = float64(last.Entered - first.Entered)
				wait.For(t, wait.Long, "the code that calls enter now is followed", func() bool {
					if err := vm.search(); err != nil {
						return false
					}
					list, err := vm.current()
					return err == nil && len(list) > 0 && f.Code(g.PID()).Versions[list[len(list)-1].Version]
				})
				t.Logf("%s: %.0f calls, %.0f to %.0f in truth: %+v, %d versions", test.name, got, least, most, last,
					versions)
			}
			// A hundredth for when the breakpoints are set anew, on a machine whose agent comes too
			// late to refill them.
			if got < 0.99*least-1 || got > most+1 {
				t.Errorf("%s: %.0f calls, %.0f to %.0f in truth", test.name, got, least, most)
			}
			if last.Unwound > last.Returned/1000+2 || last.Lost > 0 || last.Refused > 0 {
				t.Errorf("%s: %+v", test.name, last)
			}
		})
	}
}
