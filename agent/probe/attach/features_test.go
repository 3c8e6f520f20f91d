package attach

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/kernels/observed"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// knownKernels is what docs/reliability.md says of kernels.
const knownKernels = "testdata/kernels.json"

var record = flag.String("observed", "", "write what TestKernelFeatures finds into that file")

// version is a kernel's, in front of what builders append.
var version = regexp.MustCompile(`^[0-9.]+(-[0-9]+)?(\+deb[0-9]+)?`)

// Each thing that the agent tries of a kernel has the outcome that the documentation says.
func TestKernelFeatures(t *testing.T) {
	needs.Root(t, "attaching to probes")
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	k := observed.Kernel{Release: version.FindString(unix.ByteSliceToString(u.Release[:]))}
	add := func(name, found string) { k.Features = append(k.Features, observed.Feature{Name: name, Found: found}) }
	yes := func(name string, found bool) {
		if found {
			add(name, "yes")
		} else {
			add(name, "no")
		}
	}

	probes := NewUprobes()
	yes("uprobe.multi links", probes.Multi())
	yes("uprobe.multi links of a process, which see all its threads", probes.FiltersByPID())
	yes("NOPs of several bytes at probes stay what they are", !ReplacesNops())
	add("lock of BPF ring buffers", ringLock())

	o, err := bpf.Load(bpf.Options{NoTick: true})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer o.Close()
	waits := func(hook bpf.ReturnHook) bool {
		f, err := o.LoadOffCPU(bpf.OffCPUOptions{Hooks: []bpf.ReturnHook{hook}})
		if err != nil {
			t.Logf("%v: %v", hook, firstLine(err))
			return false
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		return true
	}
	for _, hook := range []bpf.ReturnHook{bpf.ReturnExit, bpf.ReturnSwitchIn} {
		yes("waits end at `"+hook.String()+"`", waits(hook))
	}
	functions := kernelFunctions(t)
	tickFunction := uint64(0)
	for _, f := range functions(tickFunctions) { // as NewKernelTicks: the last one
		tickFunction = f.Start
	}
	for _, hook := range []bpf.TickHook{bpf.ChargeTick, bpf.ExpireTick} {
		var ticks KernelTicks
		err := ticks.follow(o, bpf.KernelTickOptions{Hook: hook, Share: 1, Entries: functions(timerInterrupts),
			Function: tickFunction})
		yes("the kernel's tick by "+hook.String(), err == nil)
		if err != nil {
			t.Logf("%v: %v", hook, firstLine(err))
			continue
		}
		if err := ticks.Close(); err != nil {
			t.Error(err)
		}
	}

	t.Log(k)
	if *record != "" {
		if err := observed.Record(*record, k); err != nil {
			t.Fatal(err)
		}
	}
	kernels, err := observed.Read(knownKernels)
	if err != nil {
		t.Fatal(err)
	}
	if known, ok := observed.Find(kernels, k); ok && !reflect.DeepEqual(known.Features, k.Features) {
		t.Errorf("%s has of %s\n%v\nbut this kernel has\n%v\nIf that is right, record it: see package observed",
			knownKernels, known.Release, known, k)
	}
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// kernelFunctions finds functions of the kernel, in the order of names.
func kernelFunctions(t *testing.T) func(names []string) []bpf.CodeRange {
	t.Helper()
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	return func(names []string) (found []bpf.CodeRange) {
		for _, name := range names {
			for line := range strings.Lines(string(symbols)) {
				var start uint64
				if fields := strings.Fields(line); fields[2] == name {
					if _, err := fmt.Sscanf(fields[0], "%x", &start); err != nil {
						t.Fatal(err)
					}
					found = append(found, bpf.CodeRange{Start: start, End: start + 1})
					break
				}
			}
		}
		return found
	}
}
