package semaphore

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// TestCell plays a guest with this process's own memory: a semaphore between two values that are nobody's business.
func TestCell(t *testing.T) {
	mem, err := openMemory(proc.DefaultRoot, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	words := &[3]uint16{0xaaaa, 0, 0xbbbb}
	c := func(set bool) *cell {
		return &cell{mem: mem, addr: int64(uintptr(unsafe.Pointer(&words[1]))), set: set}
	}
	recover := func(c *cell) error { _, err := c.recover(); return err }
	for _, test := range []struct {
		name   string
		do     func(*cell) error
		set    bool // by the cell
		before uint16
		after  uint16
		err    error
	}{
		{"arm", (*cell).arm, false, 0, 1, nil},
		{"arm twice", (*cell).arm, true, 1, 1, nil},
		{"arm what a tracer holds", (*cell).arm, false, 1, 1, errHeld},
		{"arm after somebody cleared", (*cell).arm, true, 0, 1, nil},
		{"arm what a tracer joined", (*cell).arm, true, 2, 2, errHeld},
		{"clear", (*cell).clear, true, 1, 0, nil},
		{"clear what is not ours", (*cell).clear, false, 1, 1, nil},
		{"clear after somebody did", (*cell).clear, true, 0, 0, nil},
		{"clear what a tracer joined", (*cell).clear, true, 2, 1, errHeld},
		{"recover", recover, false, 1, 0, nil},
		{"nothing to recover", recover, false, 0, 0, nil},
		{"recover what tracers hold", recover, false, 3, 3, errHeld},
	} {
		words[1] = test.before
		if err := test.do(c(test.set)); !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", test.name, err, test.err)
		}
		if *words != [3]uint16{0xaaaa, test.after, 0xbbbb} {
			t.Errorf("%s: %#x, want %d in the middle", test.name, *words, test.after)
		}
	}
	if err := (&cell{mem: mem, addr: 8}).arm(); !errors.Is(err, proc.ErrUnmapped) {
		t.Errorf("armed address 8: %v", err)
	}
}
