//go:build linux && amd64

package bpf

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

func attachSingle(t *testing.T, p *ebpf.Program, cookie uint64) link.Link {
	t.Helper()
	ex, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ex.Uprobe("announce", p, &link.UprobeOptions{Address: announceOffset(t), Cookie: cookie})
	if err != nil {
		t.Fatalf("attach uprobe: %v", err)
	}
	return l
}

func attachMulti(t *testing.T, p *ebpf.Program, cookie uint64) link.Link {
	t.Helper()
	ex, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ex.UprobeMulti(nil, p, &link.UprobeMultiOptions{Addresses: []uint64{announceOffset(t)},
		Cookies: []uint64{cookie}})
	if err != nil && olderThan(t, 6, 6) {
		t.Skip("the kernel has no uprobe.multi: 6.6 has")
	}
	if err != nil {
		t.Fatalf("attach uprobe.multi: %v", err)
	}
	return l
}

// announceOffset is where announce is in this test's executable.
func announceOffset(t *testing.T) uint64 {
	t.Helper()
	pc := uint64(reflect.ValueOf(announce).Pointer())
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var low, high, offset uint64
		var access string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x", &low, &high, &access, &offset); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if pc >= low && pc < high {
			return pc - low + offset
		}
	}
	t.Fatal("announce is in no mapping")
	return 0
}
