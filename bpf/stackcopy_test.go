//go:build linux && amd64

package bpf

import "testing"

// How much of a stack is copied, and that it is the right part.
func TestKernelStackCopy(t *testing.T) {
	w := newWalker(t)
	stack := newRegion(t, 16<<10)
	for a := stack.base; a < stack.end(); a += 8 {
		stack.put64(a, a)
	}
	const chunk = 2048
	for _, test := range []struct {
		name   string
		addr   uint64
		base   uint64 // 0 if unknown
		len    uint32
		copied uint64 // 0 if it cannot be read
	}{
		{name: "deep in the stack", addr: stack.base, base: stack.end(), len: 16, copied: chunk},
		{name: "near its end", addr: stack.end() - 512, base: stack.end(), len: 80, copied: 512},
		{name: "its last words", addr: stack.end() - 16, base: stack.end(), len: 16, copied: 16},
		{name: "end not known, far", addr: stack.end() - chunk, len: 128, copied: chunk},
		{name: "end not known, near", addr: stack.end() - chunk + 8, len: 128, copied: 128},
		{name: "end not known, at it", addr: stack.end() - 16, len: 16},
		{name: "end below", addr: stack.base + 4096, base: stack.base, len: 16, copied: chunk},
		{name: "end within the words", addr: stack.base, base: stack.base + 8, len: 16, copied: 16},
		{name: "end not where memory ends", addr: stack.end() - 64, base: stack.end() + 64, len: 16},
		{name: "below the stack", addr: stack.base - 8, base: stack.end(), len: 16},
		{name: "no address", addr: 0, len: 16},
		{name: "last of all addresses", addr: ^uint64(0) - 7, len: 16},
		{name: "in the kernel", addr: 1<<63 | 1<<47, len: 16},
	} {
		ret, out := w.run(t, w.Cover, WalkTestRequest{Sp: test.addr, Base: test.base, Len: test.len})
		switch {
		case ret != 0 && test.copied != 0:
			t.Errorf("%s: not read", test.name)
		case ret == 0 && out.StackcopyLen != test.copied:
			t.Errorf("%s: %d bytes copied, want %d", test.name, out.StackcopyLen, test.copied)
		case ret == 0 && out.Word != test.addr+uint64(test.len)-8:
			t.Errorf("%s: word is %#x, want %#x", test.name, out.Word, test.addr+uint64(test.len)-8)
		}
	}
}
