//go:build linux && amd64

package probesite_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// Every entry into ObjectMonitor::enter ends at one of the sites after its calls, once. In JVMs
// whose threads contend for a monitor and wait at it, probes at both ends count the same.
func TestLiveReturnsMatchEntries(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("needs root")
	}
	found, err := jvm.Find(jvm.Root)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[int]bool{}
	for _, jdk := range found {
		versions[jdk.Version] = true
		t.Run(strconv.Itoa(jdk.Version), func(t *testing.T) { countBothEnds(t, jdk) })
	}
	if os.Getenv("CI") == "true" && !(versions[17] && versions[25]) {
		t.Errorf("JDK 17 or 25 is not installed: %v", versions)
	}
}

func countBothEnds(t *testing.T, jdk jvm.JDK) {
	file, err := os.Open(filepath.Join(jdk.Home, "lib/server/libjvm.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	elf, err := elffile.OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	finder := probesite.New(elf, file)
	entries, err := finder.Entries("ObjectMonitor::enter")
	if err != nil {
		t.Fatal(err)
	}
	returns, err := finder.AfterCalls(probesite.Calls{Callee: "ObjectMonitor::enter"})
	if err != nil || len(returns.Missed) > 0 {
		t.Fatalf("%+v, %v", returns.Missed, err)
	}

	classes, err := jdk.Compile(t.Context(), jvm.Build{Sources: os.DirFS("testdata"), Only: []string{"Contended.java"},
		Release: jvm.MinVersion})
	if err != nil {
		t.Fatal(err)
	}
	guest, err := jvm.Start(t.Context(), jvm.Command{JDK: jdk, Flags: []string{"-Xmx64m"}, Classpath: []string{classes},
		Main: "Contended"})
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	counts, program := counter(t, 1+len(returns.Sites))
	var sites []attach.Site
	for i, s := range append(entries[:1:1], returns.Sites...) {
		sites = append(sites, attach.Site{Offset: s.Offset, Cookie: uint64(i)})
	}
	links, err := attach.NewUprobes().Attach(file, guest.PID(), program, sites)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Order("contend"); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	total := func(from, to int) (n uint64) {
		for i := from; i < to; i++ {
			var v uint64
			if err := counts.Lookup(uint32(i), &v); err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				t.Logf("%d at %s+%d", v, returns.Sites[i-1].Function, returns.Sites[i-1].Distance)
			}
			n += v
		}
		return n
	}
	entered, left := total(0, 1), total(1, len(sites))
	if entered != left || entered < 10 {
		t.Errorf("%d entries, %d returns", entered, left)
	}
}

// counter loads a program that counts hits by the cookie of their site.
func counter(t *testing.T, sites int) (*ebpf.Map, *ebpf.Program) {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(sites)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	spec := &ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetAttachCookie.Call(),
			asm.StoreMem(asm.RFP, -4, asm.R0, asm.Word),
			asm.LoadMapPtr(asm.R1, counts.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	}
	if attach.NewUprobes().Multi() {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return counts, p
}
