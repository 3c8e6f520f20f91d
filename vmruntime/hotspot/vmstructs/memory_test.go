package vmstructs

import (
	"bytes"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

func TestTargetStrings(t *testing.T) {
	long := string(bytes.Repeat([]byte("abcdefgh"), MaxNameBytes/8))
	m := &vmtest.Image{Base: PageSize - 20} // the first page ends soon
	short, exact, tooLong := m.Text("short"), m.Text(long), m.Text(long+"x")
	last := m.Put([]byte("no end"))
	names, err := Reader{m.Memory()}.Texts([]uint64{short, exact, tooLong, last, 0, 0xdead0000, short})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{short: "short", exact: long} {
		if names[addr] != want {
			t.Errorf("string at %#x is %q, want %q", addr, names[addr], want)
		}
	}
	if len(names) != 2 {
		t.Errorf("%d strings: %v", len(names), names)
	}
	if s, err := (Reader{m.Memory()}).Text(tooLong); err == nil {
		t.Errorf("string without end: %q", s)
	}
}

func TestBatch(t *testing.T) {
	m := &vmtest.Image{Base: 0x1000}
	at := m.Words(0x1122334455667788)
	var b Batch
	b.Add(at, 8)
	b.Add(at, 2)
	b.Add(0x9000, 8)
	b.Add(at, 64<<10) // larger than a slab, and than the memory
	if err := b.Read(m.Memory()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		n  uint64
		ok bool
	}{{0x1122334455667788, true}, {0x7788, true}, {0, false}, {0, false}} {
		if n, ok := b.Word(i); n != want.n || ok != want.ok {
			t.Errorf("range %d: %#x, %v; want %#x, %v", i, n, ok, want.n, want.ok)
		}
	}
}
