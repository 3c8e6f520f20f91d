//go:build linux && amd64

package bpf

import "testing"

// What passes for a return address where nothing else tells.
func TestKernelScan(t *testing.T) {
	w := newWalker(t)
	vm := newFakeVM(t, builds[1])
	w.attach(t, vm)
	c := vm.compile(make([]byte, 0x400), 64, 0)
	stack := newRegion(t, 4096)
	scan := func(words uint32, sp uint64) int32 {
		ret, _ := w.run(t, w.Scan, WalkTestRequest{Pid: vm.pid(), Sp: sp, Words: words})
		return ret
	}
	for i, test := range []struct {
		name   string
		before instruction // the address
		found  bool
	}{
		{"call rel32", ins("", "e8 00 00 00 00", nil), true},
		{"call rax", ins("", "ff d0", nil), true},
		{"call r10", ins("", "41 ff d2", nil), true},
		{"call [rbx+8]", ins("", "ff 53 08", nil), true},
		{"call [rbx+0x80]", ins("", "ff 93 80 00 00 00", nil), true},
		{"jmp rax", ins("", "ff e0", nil), false},
		{"jmp [rbx+8]", ins("", "ff 63 08", nil), false},
		{"jmp [rbx+0x80]", ins("", "ff a3 80 00 00 00", nil), false},
		{"nops", ins("", "90 90 90 90 90 90", nil), false},
		{"a displacement of -1", ins("", "48 8b 83 ff ff ff ff", nil), false},
	} {
		at := c.begin + 0x20 + uint64(i)*0x20
		vm.code.put(at-uint64(len(test.before.bytes)), test.before.bytes)
		stack.put64(stack.base+40, at)
		if got := scan(96, stack.base); (got == 5) != test.found || (got == -1) == test.found {
			t.Errorf("behind %s: found at %d", test.name, got)
		}
	}

	call := c.returnTo(0x20)
	for _, test := range []struct {
		name  string
		value uint64
		words uint32
		sp    uint64
		want  int32
	}{
		{"in the interpreter", vm.interpreter.begin + 1, 96, stack.base, 5},
		{"the return barrier", vm.ReturnBarrier, 96, stack.base, 5},
		{"at sp", call, 96, stack.base + 40, 0},
		{"the last word", call, 6, stack.base, 5},
		{"behind the last word", call, 5, stack.base, -1},
		{"more words than can be looked at", call, 1 << 31, stack.base, 5},
		{"no words", call, 0, stack.base + 40, -1},
		{"outside the code cache", vm.code.end(), 96, stack.base, -1},
		{"where no code can be read", vm.code.base + 2, 96, stack.base, -1},
		{"below the stack", call, 96, stack.base - 8, -1},
	} {
		stack.put64(stack.base+40, test.value)
		if got := scan(test.words, test.sp); got != test.want {
			t.Errorf("%s: found at %d, want %d", test.name, got, test.want)
		}
	}

	// Four words are looked at where the end of the stack is near.
	stack.put64(stack.end()-16, call)
	if got := scan(96, stack.end()-32); got != 2 {
		t.Errorf("near the end of the stack: found at %d, want 2", got)
	}
}
