//go:build linux && amd64

package hitcost

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
)

// The running kernel refuses exactly the instructions of kind Refused.
func TestLiveRefused(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("needs root")
	}
	p, err := empty()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, test := range []string{
		"90", "6690", "f390", "0f1f440000", "0f1f00", "660f1f440000", "662e0f1f840000000000", // NOPs
		"55", "4155", "4855", "6655", "ff30", "6a01", // push
		"eb00", "e900000000", "7400", "0f8400000000", "e800000000", "e300", "e200", // branches
		"3e7400", "66eb00", "2e0f8400000000", "f2e800000000", "66666648e800000000", "ffd0", "3effd0", "ffe0",
		"f30f1efa", "c3", "5d", "4883ec18", "488b0500000000", "4889e5", "85c0", "4531c0",
		"f0480fb111", "f0830c2400", "cc", "cd80", "f4", "fa", "0f05", "0f0b", "0fa2", "0f31", "0f01d0", "6e", "e410",
		"ec",
		"c5f877", "c5fa6f06", "c5fd6f06", "c5fa7f06", "c5fdefc0", "c4e2791801", "62f17c481000", "660f3800c1",
		"f3a4", "f20f10c1", "660fefc0", "64488b042528000000", "67488d00", "0faef0", "0fc7f0",
	} {
		code, err := hex.DecodeString(test)
		if err != nil {
			t.Fatal(err)
		}
		i, err := probesite.Decode(code)
		if err != nil {
			t.Logf("%s: %v", test, err)
		}
		refused := attachToCode(t, code, p)
		if i.Kind == probesite.LongNop {
			continue // 66 90 was refused by kernels that did not emulate it
		}
		if err == nil && (refused != nil) != (i.Kind == probesite.Refused) {
			t.Errorf("%s is %v, the kernel says %v", test, i.Kind, refused)
		}
	}
}

// attachToCode attaches to code in a file that this process maps: the kernel then checks the
// instruction.
func attachToCode(t *testing.T, code []byte, p *ebpf.Program) error {
	t.Helper()
	const at = 64 // 0 would be taken for the address of a symbol
	file, err := os.Create(filepath.Join(t.TempDir(), "code"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(strings.Repeat("\x90", at) + string(code) +
		strings.Repeat("\x90", os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	links, err := attach.NewUprobes().Attach(file, os.Getpid(), p, []attach.Site{{Offset: at, OwnsStack: true}})
	for _, l := range links {
		l.Close()
	}
	return err
}
