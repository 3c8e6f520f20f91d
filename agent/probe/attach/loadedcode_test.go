package attach

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// loads notes what is added and removed, by where it begins.
type loads map[uint64]struct {
	size uint64
	name string
	gone bool
}

func (l loads) Add(start, size uint64, name string) {
	l[start] = struct {
		size uint64
		name string
		gone bool
	}{size, name, false}
}

func (l loads) Remove(start uint64) {
	c := l[start]
	c.gone = true
	l[start] = c
}

func (l loads) Resize(start, size uint64) {
	if c, ok := l[start]; ok {
		c.size = size
		l[start] = c
	}
}

// A BPF program that is loaded is followed with its place, its size and its name, until it is gone.
// The sizes of those that were loaded before are the same by their ids.
func TestKernelLoadedCode(t *testing.T) {
	needs.Root(t, "following BPF programs")
	followed := loads{}
	c, err := FollowLoadedCode(followed)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "loaded_code", Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	starts, _ := info.JitedKsymAddrs()
	sizes, _ := info.JitedFuncLens()
	if len(starts) != 1 || len(sizes) != 1 {
		t.Skip("the kernel does not compile BPF programs, or hides where they are")
	}
	start := uint64(starts[0])
	if err := c.Drain(); err != nil {
		t.Fatal(err)
	}
	want := "bpf_prog_" + info.Tag + "_loaded_code"
	if got := followed[start]; got.name != want || got.size != uint64(sizes[0]) || got.gone {
		t.Errorf("%+v at %#x, want %s of %d bytes", got, start, want, sizes[0])
	}
	known := loads{start: {}}
	SizeLoadedCode(known)
	if known[start].size != uint64(sizes[0]) {
		t.Errorf("by its id the program has %d bytes, want %d", known[start].size, sizes[0])
	}
	p.Close()
	err = wait.Until(t.Context(), 30*time.Second, "the program is gone", func() (bool, error) { // after a grace period
		err := c.Drain()
		return followed[start].gone, err
	})
	if err != nil {
		t.Error(err)
	}
	if n := c.Lost(); n != 0 {
		t.Errorf("%d records were lost", n)
	}
}
