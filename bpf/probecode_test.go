//go:build linux && amd64

package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// arguments are what a C++ function finds in its registers, by number, and behind them what a call
// of it has returned, and what its caller has in r12, which it keeps.
type arguments [8]uint64

// returned is what a probe behind a call sees.
func returned(v uint64) arguments { return arguments{6: v} }

// kept is what a probe sees in a function that has something in a register which the functions it
// calls keep.
func kept(v uint64) arguments { return arguments{7: v} }

// probedCode loads arguments, whose address is in rax (Go's first), into rdi, rsi, rdx, rcx, r8,
// r9, r12 and rax, and has then a nop for a probe. It keeps no frame and uses no register that a Go
// function must keep.
var probedCode = []byte{
	0x48, 0x8b, 0x38, // mov (%rax),%rdi
	0x48, 0x8b, 0x70, 0x08, // mov 8(%rax),%rsi
	0x48, 0x8b, 0x50, 0x10, // mov 16(%rax),%rdx
	0x48, 0x8b, 0x48, 0x18, // mov 24(%rax),%rcx
	0x4c, 0x8b, 0x40, 0x20, // mov 32(%rax),%r8
	0x4c, 0x8b, 0x48, 0x28, // mov 40(%rax),%r9
	0x4c, 0x8b, 0x60, 0x38, // mov 56(%rax),%r12
	0x48, 0x8b, 0x40, 0x30, // mov 48(%rax),%rax
	0x90, // nop
	0xc3, // ret
}

const (
	probedNop    = 31 // offset of the nop in probedCode
	probedStride = 64 // bytes from one copy of it to the next
	probedSites  = 32 // copies
)

// A probedFile is a library of functions that play a VM's, each with a place for a probe.
type probedFile struct {
	executable *link.Executable
	page       uint64 // offset of the code in the file
	mem        []byte // the code
	sites      int    // given out
}

func newProbedFile(t *testing.T) *probedFile {
	t.Helper()
	page := os.Getpagesize()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', elf.EI_CLASS: byte(elf.ELFCLASS64),
			elf.EI_DATA: byte(elf.ELFDATA2LSB), elf.EI_VERSION: 1},
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64,
	}
	var content bytes.Buffer
	if err := binary.Write(&content, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	content.Write(make([]byte, page-content.Len()))
	for range probedSites {
		content.Write(probedCode)
		content.Write(make([]byte, probedStride-len(probedCode)))
	}
	path := filepath.Join(t.TempDir(), "probed.so")
	if err := os.WriteFile(path, content.Bytes(), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := &probedFile{page: uint64(page)}
	if p.mem, err = unix.Mmap(int(f.Fd()), int64(page), page, unix.PROT_READ|unix.PROT_EXEC,
		unix.MAP_PRIVATE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(p.mem) })
	if p.executable, err = link.OpenExecutable(path); err != nil {
		t.Fatal(err)
	}
	return p
}

// attach attaches a program to a function of its own, and returns what calls that.
func (f *probedFile) attach(t *testing.T, prog *ebpf.Program, cookie uint64) (call func(arguments), pc uint64) {
	t.Helper()
	if f.sites == probedSites {
		t.Fatal("no place for another probe")
	}
	at := uint64(f.sites * probedStride)
	f.sites++
	l, err := f.executable.Uprobe("probed", prog, &link.UprobeOptions{Address: f.page + at + probedNop, Cookie: cookie})
	if err != nil {
		t.Fatalf("attach uprobe: %v", err)
	}
	t.Cleanup(func() { l.Close() })
	entry := new(uintptr) // a func value points to where its code begins
	*entry = uintptr(unsafe.Pointer(&f.mem[at]))
	run := *(*func(*arguments))(unsafe.Pointer(&entry))
	return func(a arguments) { run(&a) }, addressOf(f.mem) + at + probedNop
}
