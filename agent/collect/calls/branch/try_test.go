//go:build linux

package branch

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func load(t *testing.T) *bpf.Objects {
	t.Helper()
	o, err := bpf.Load(bpf.Options{})
	if err != nil && os.Getuid() != 0 && os.Getenv("CI") == "" &&
		(errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// On the machine that runs the test, the engine either samples calls or reports what the machine
// lacks.
func TestTry(t *testing.T) {
	o := load(t)
	root := os.DirFS("/")
	machine, missing := findPMU(root)
	e, err := Try(o, root)
	if missing != nil {
		if !errors.Is(err, errNoPMU) || !strings.Contains(err.Error(), "needs bare metal") {
			t.Fatalf("without counters: %v", err)
		}
		t.Logf("refused: %v", err)
		return
	}
	if err != nil {
		if machine.branches() > 0 {
			t.Errorf("with %d branch records: %v", machine.branches(), err)
		}
		t.Logf("refused: %v", err)
		return
	}
	defer e.Close()
	t.Logf("%s", e.Describe())
	if err := e.Tune(profile.Rate{Hz: 1000, Burst: profile.Burst{Stride: MinPeriod, Samples: 32}}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		for range trialCalls {
			called()
		}
		c, err := o.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		if c[bpf.CallsDelivered] > 100 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no calls: %+v", e.Cost())
		}
	}
}

// On a machine that claims to have counters but lacks the needed ones, the error says what both
// ways of sampling lack.
func TestTryRefuses(t *testing.T) {
	if _, err := findPMU(os.DirFS("/")); err == nil {
		t.Skip("this machine has counters: TestTry checks what they can do")
	}
	o := load(t)
	_, err := Try(o, files("cpu", with(formats, "caps/branches", "0")))
	if err == nil {
		t.Fatal("branch records without counters")
	}
	for _, want := range []string{"no branch records: ", "needs Intel with LBR", "no retired calls: ",
		"open event 0x2c4"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
	if _, err := Try(o, files("cpu", with(formats, "proc/cpuinfo", "vendor_id : AuthenticAMD"))); err == nil ||
		!strings.Contains(err.Error(), "only Intel") {
		t.Errorf("on AMD: %v", err)
	}
}
