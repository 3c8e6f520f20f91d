package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/elffile/elftest"
)

func TestBias(t *testing.T) {
	// The layouts of four linkers; all that Bias sees are the load segments.
	separate := []elf.Prog64{ // ld -z separate-code: libjvm.so of Debian's JDK 17
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: 0x250b80, Memsz: 0x250b80, Align: 0x1000},
		elftest.Code(0x251000, 0x251000, 0xd52029),
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: 0xfa4000, Vaddr: 0xfa4000, Filesz: 0x280f68,
			Memsz: 0x280f68},
		elftest.Data(0x12254f8, 0x12254f8, 0xebde8, 0x7dbf0),
	}
	joined := []elf.Prog64{ // ld before: one page of the file is in both segments
		elftest.Code(0, 0, 0x6b0),
		elftest.Data(0x6b0, 0x2006b0, 0x200, 0),
	}
	joined[0].Align, joined[1].Align = 0x200000, 0x200000
	shifted := []elf.Prog64{ // lld: addresses run ahead of offsets by one page per segment
		elftest.Data(0, 0, 0x5f4, 0),
		elftest.Code(0x600, 0x1600, 0x320),
	}
	fixed := []elf.Prog64{elftest.Code(0x1000, 0x401000, 0x5000)} // not position-independent

	for _, test := range []struct {
		name                string
		segments            []elf.Prog64
		mapStart, mapOffset uint64
		want                uint64
	}{
		{"separate code", separate, 0x7f0000251000, 0x251000, 0x7f0000000000},
		{"separate code, split mapping", separate, 0x7f0000400000, 0x400000, 0x7f0000000000},
		{"separate headers", separate, 0x7f0000000000, 0, 0x7f0000000000},
		{"separate data, page before its start", separate, 0x7f0001225000, 0x1225000, 0x7f0000000000},
		{"shared page is code", joined, 0x7f0000000000, 0, 0x7f0000000000},
		{"code starts in a page of headers", shifted, 0x7f0000001000, 0, 0x7f0000000000},
		{"fixed address", fixed, 0x401000, 0x1000, 0},
		{"prelinked, loaded below", fixed, 0x1000, 0x1000, 1<<64 - 0x400000},
	} {
		t.Run(test.name, func(t *testing.T) {
			bias, err := Segments(test.segments).Bias(test.mapStart, test.mapOffset)
			if err != nil || bias != test.want {
				t.Errorf("Bias(%#x, %#x) = %#x, %v, want %#x", test.mapStart, test.mapOffset, bias, err, test.want)
			}
		})
	}
	if bias, err := Segments(fixed).Bias(0x401000, 0x6000); !errors.Is(err, ErrNotFound) {
		t.Errorf("Bias past the segment = %#x, %v, want %v", bias, err, ErrNotFound)
	}
}

func TestAddressToOffset(t *testing.T) {
	f := open(t, fixture())
	for _, test := range []struct {
		vaddr, offset uint64
		ok            bool
	}{
		{0xfff, 0, false},
		{0x1000, 0x1000, true},
		{0x10ff, 0x10ff, true},
		{0x1100, 0, false}, // between the segments
		{0x2100, 0x1100, true},
		{0x2140, 0, false}, // .bss
		{1 << 63, 0, false},
	} {
		offset, ok := f.AddressToOffset(test.vaddr)
		if offset != test.offset || ok != test.ok {
			t.Errorf("AddressToOffset(%#x) = %#x, %t, want %#x, %t", test.vaddr, offset, ok, test.offset, test.ok)
		}
		if !test.ok {
			continue
		}
		if vaddr, ok := f.OffsetToAddress(test.offset); vaddr != test.vaddr || !ok {
			t.Errorf("OffsetToAddress(%#x) = %#x, %t, want %#x", test.offset, vaddr, ok, test.vaddr)
		}
	}
}

// A segment may state more bytes than the file has; its offsets must not be handed out.
func TestAddressToOffsetPastTheEnd(t *testing.T) {
	f := open(t, elftest.Image{Segments: []elf.Prog64{elftest.Code(0, 0, 1<<40)}})
	if offset, ok := f.AddressToOffset(1 << 39); ok {
		t.Errorf("AddressToOffset = %#x, want none", offset)
	}
}

// TestBiasOfProcess checks the bias of every library that a child has mapped: its memory must have
// the file's header where the bias says.
func TestBiasOfProcess(t *testing.T) {
	maps, memory := child(t)
	checked := 0
	for line := range strings.Lines(maps) {
		var start, end, offset uint64
		var perms, device, inode, path string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %s %s", &start, &end, &perms, &offset, &device, &inode, &path)
		if n < 7 || !strings.HasPrefix(path, "/") || !strings.Contains(perms, "x") {
			continue
		}
		f, _ := openPath(t, path)
		bias, err := f.Bias(start, offset)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		header, ok := f.OffsetToAddress(0)
		magic := make([]byte, 4)
		if _, err := memory.ReadAt(magic, int64(bias+header)); !ok || err != nil || string(magic) != elf.ELFMAG {
			t.Errorf("%s: %q at %#x, %v, want the file's header", path, magic, bias+header, err)
		}
		checked++
	}
	if checked < 2 {
		t.Errorf("%d mappings checked, want at least the program and one library, of\n%s", checked, maps)
	}
}

// child runs cat and returns its mappings and its memory, once its libraries are loaded.
func child(t *testing.T) (maps string, memory *os.File) {
	t.Helper()
	cat := exec.Command("cat")
	in, err1 := cat.StdinPipe()
	out, err2 := cat.StdoutPipe()
	if err := errors.Join(err1, err2, cat.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cat.Wait()
	})
	echo := []byte{'x'}
	if _, err := in.Write(echo); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(echo); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cat.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if memory, err = os.Open(fmt.Sprintf("/proc/%d/mem", cat.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	return string(data), memory
}
