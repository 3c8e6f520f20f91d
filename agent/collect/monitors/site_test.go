package monitors

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A memory is a piece of a process's memory.
type memory struct {
	begin uint64
	bytes []byte
}

func (m *memory) Read(addr uint64, p []byte) error {
	if addr < m.begin || addr-m.begin > uint64(len(m.bytes)) || len(p) > len(m.bytes)-int(addr-m.begin) {
		return errors.New("nothing there")
	}
	copy(p, m.bytes[addr-m.begin:])
	return nil
}

func (m *memory) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = m.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

// enterCode enters the monitor of the object that rsi points to, as JDK 17 does: mov rax,[rsi]; or
// rax,1; mov [rbx],rax; lock cmpxchg [rsi],rbx.
var enterCode = []byte{0x48, 0x8b, 0x06, 0x48, 0x83, 0xc8, 0x01, 0x48, 0x89, 0x03, 0xf0, 0x48, 0x0f, 0xb1, 0x1e}

const codeBegin = 0x7f0000001000

// method is code that enters a monitor twice, with nops around.
func method(behind int) (*memory, vmruntime.Compilation) {
	nops := func(n int) []byte { return bytes.Repeat([]byte{0x90}, n) }
	code := bytes.Join([][]byte{nops(5), enterCode, nops(40), enterCode, nops(behind)}, nil)
	return &memory{codeBegin, code}, vmruntime.Compilation{Begin: codeBegin, End: codeBegin + uint64(len(code)),
		Version: 9}
}

func TestFind(t *testing.T) {
	m, c := method(40)
	sites, err := Find(m, c, 17)
	if err != nil || len(sites) != 2 {
		t.Fatalf("%d sites, %v", len(sites), err)
	}
	const loaded = 3 // bytes of the load of the mark
	for i, want := range []uint64{codeBegin + 5 + loaded, codeBegin + 5 + 15 + 40 + loaded} {
		s := sites[i]
		const rsi = 104 // in struct pt_regs
		if s.Place != (Place{want, 9}) || s.kernel.Reg != rsi || s.kernel.Displacement != 0 {
			t.Errorf("%+v, want %#x", s, want)
		}
	}
	if err := unchanged(m, sites); err != nil {
		t.Error(err)
	}
	m.bytes[5+loaded+2]++
	if err := unchanged(m, sites); !errors.Is(err, watch.ErrChanged) {
		t.Errorf("other code: %v", err)
	}
	if err := unchanged(&memory{}, sites); !errors.Is(err, watch.ErrChanged) {
		t.Errorf("no code: %v", err)
	}
}

func TestFindRefuses(t *testing.T) {
	m, c := method(0) // the second one ends with the code: not enough to distinguish it from other code
	if sites, err := Find(m, c, 17); err != nil || len(sites) != 1 {
		t.Errorf("%d sites, %v", len(sites), err)
	}
	for name, change := range map[string]func(*vmruntime.Compilation){
		"empty":     func(c *vmruntime.Compilation) { c.End = c.Begin },
		"backwards": func(c *vmruntime.Compilation) { c.End = c.Begin - 1 },
		"huge":      func(c *vmruntime.Compilation) { c.End = c.Begin + maxCode + 1 },
		"gone":      func(c *vmruntime.Compilation) { c.Begin, c.End = 0x1000, 0x2000 },
	} {
		c := c
		change(&c)
		if sites, err := Find(m, c, 17); err == nil {
			t.Errorf("%s: %d sites", name, len(sites))
		}
	}
}
