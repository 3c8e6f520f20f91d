//go:build linux && amd64

package listener

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot"
)

// A bench is a Listener together with the agent's BPF programs.
type bench struct {
	*Listener
	agent   *bpf.Objects
	watcher *watch.Watcher
	pool    *proc.Pool
}

// Verifying the programs takes most of a test's time: all tests share one copy.
var loadBench = sync.OnceValues(func() (*bench, error) {
	o, err := bpf.Load(bpf.Options{})
	if err != nil {
		return nil, err
	}
	watcher := watch.New(proc.DefaultRoot)
	l, err := Open(o, watcher)
	if err != nil {
		return nil, err
	}
	return &bench{l, o, watcher, proc.NewPool(proc.PoolOptions{})}, nil
})

func newBench(t testing.TB) *bench {
	t.Helper()
	b, err := loadBench()
	if err != nil && os.Getuid() != 0 && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		needs.Missing(t, fmt.Sprintf("needs CAP_BPF and CAP_PERFMON: %v", err))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A known is a running Known.java, attached.
type known struct {
	Guest
	bench *bench
	vm    *hotspot.Process
}

func (b *bench) startKnown(t testing.TB, jdk jvm.JDK, threads int, flags ...string) *known {
	t.Helper()
	classes, err := needs.JDK(t).Compile(t.Context(), jvm.Build{Sources: os.DirFS("testdata"),
		Only: []string{"Known.java"}, Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	g, err := jvm.Start(context.Background(), jvm.Command{ // it ends when its standard input is closed
		JDK: jdk, Classpath: []string{classes}, Main: "Known", Args: []string{strconv.Itoa(threads)},
		Flags: append([]string{"-XX:+UseSerialGC", "-Xmx64m", "-XX:CompileCommand=quiet",
			"-XX:CompileCommand=dontinline,Known::*"}, flags...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	k := &known{bench: b}
	if k.Identity, err = proc.DefaultRoot.Identify(g.PID()); err != nil {
		t.Fatal(err)
	}
	mem, err := proc.OpenMemory(proc.DefaultRoot, k.Identity, b.pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	k.Memory, k.Current = mem, k.current
	k.attach(t)
	return k
}

// attach reads the VM's description and passes it to the kernel side.
func (k *known) attach(t testing.TB) {
	t.Helper()
	maps, err := proc.DefaultRoot.Maps(k.PID, func(m *proc.Mapping) bool {
		return m.Exec &&
			strings.HasSuffix(m.Path, "/libjvm.so")
	})
	if err != nil || len(maps) == 0 {
		t.Fatalf("libjvm: %v", err)
	}
	file, err := os.Open(maps[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lib, err := elffile.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bias, err := lib.Bias(maps[0].Start, maps[0].Offset)
	if err != nil {
		t.Fatal(err)
	}
	im, err := hotspot.Runtime{}.Image(lib)
	if err != nil {
		t.Fatal(err)
	}
	p, err := im.Attach(vmruntime.Target{Memory: k.Memory, Bias: bias, Epoch: func() uint32 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	k.vm = p.(*hotspot.Process)
	h := kernelLayout(k.vm.Layout())
	h.StartTicks, h.Serial = k.Ticks(), 1
	processes := k.bench.agent.Processes
	if err := processes.Put(uint32(k.PID), h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = processes.Delete(uint32(k.PID)) })
}

// versions returns the existing compilations of each method of Known, including those that are no
// longer entered.
func (k *known) versions(t testing.TB) map[string][]vmruntime.Compilation {
	t.Helper()
	found := map[string][]vmruntime.Compilation{}
	var all []vmruntime.Compilation
	if err := k.vm.Compilations(func(c vmruntime.Compilation) bool {
		all = append(all, c)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		name := k.name(vmruntime.Site{Kind: vmruntime.Compiled, Exact: true, Version: c.Version, PC: c.Begin})
		if method, ok := strings.CutPrefix(name, "Known."); ok {
			found[method] = append(found[method], c)
		}
	}
	return found
}

// entries returns where calls of Known's methods arrive.
func (k *known) entries(t testing.TB) map[string]Entry {
	t.Helper()
	found := map[string]Entry{}
	for name, versions := range k.versions(t) {
		for _, c := range versions {
			if e, ok := EntryOf(c); ok {
				found[name] = e
			}
		}
	}
	return found
}

func (k *known) current(e Entry) bool {
	c, err := k.vm.Compilation(vmruntime.Site{Kind: vmruntime.Compiled, Exact: true, Version: e.Version, PC: e.Address})
	now, ok := EntryOf(c)
	return err == nil && ok && now == e
}

func (k *known) name(site vmruntime.Site) string {
	frames, err := k.vm.Lookup(site)
	if err != nil {
		return fmt.Sprintf("%+v: %v", site, err)
	}
	return frames[len(frames)-1].Function
}

// method names a frame.
func (k *known) method(t testing.TB, f bpf.Frame) string {
	t.Helper()
	site := vmruntime.Site{PC: k.vm.Layout().Cache.Low + uint64(f.CodeOffset()), Version: f.CompileID(),
		Method: f.Method(), BCI: f.BCI()}
	switch f.Kind() {
	case bpf.FrameJIT:
		site.Kind = vmruntime.Compiled
	case bpf.FrameInterpreted:
		site.Kind = vmruntime.Interpreted
	default:
		return f.String()
	}
	return strings.TrimPrefix(k.name(site), "Known.")
}
