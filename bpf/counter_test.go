package bpf

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Arrays are read with one system call as with one for each key.
func TestKernelReadAll(t *testing.T) {
	needs.Root(t, "BPF")
	cpus := ebpf.MustPossibleCPU()
	const entries = 5
	type pair [2]uint64
	for _, c := range []struct {
		kind ebpf.MapType
		each int
	}{{ebpf.Array, 1}, {ebpf.PerCPUArray, cpus}} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: c.kind, KeySize: 4, ValueSize: 16, MaxEntries: entries})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var want []pair
		for i := range entries {
			var of []pair
			for cpu := range c.each {
				of = append(of, pair{uint64(100*i + cpu), uint64(i)})
			}
			want = append(want, of...)
			in := any(of)
			if c.kind == ebpf.Array {
				in = of[0]
			}
			if err := m.Put(uint32(i), in); err != nil {
				t.Fatal(err)
			}
		}
		for name, read := range map[string]func(*ebpf.Map, []pair) error{"all": readAll[pair], "each": readEach[pair]} {
			got := make([]pair, entries*c.each)
			if err := read(m, got); err != nil || !slices.Equal(got, want) {
				t.Errorf("%v, %s: %v, %v, want %v", c.kind, name, got, err, want)
			}
		}
	}
}
