package hotspot

import (
	"bytes"
	"testing"
)

func TestTargetStrings(t *testing.T) {
	long := string(bytes.Repeat([]byte("abcdefgh"), maxNameBytes/8))
	m := &image{base: pageSize - 20} // the first page ends soon
	short, exact, tooLong := m.text("short"), m.text(long), m.text(long+"x")
	last := m.put([]byte("no end"))
	names, err := target{m.memory()}.strings([]uint64{short, exact, tooLong, last, 0, 0xdead0000, short})
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
	if s, err := (target{m.memory()}).string(tooLong); err == nil {
		t.Errorf("string without end: %q", s)
	}
}

func TestBatch(t *testing.T) {
	m := &image{base: 0x1000}
	at := m.words(0x1122334455667788)
	var b batch
	b.add(at, 8)
	b.add(at, 2)
	b.add(0x9000, 8)
	b.add(at, 64<<10) // larger than a slab, and than the memory
	if err := b.read(m.memory()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		n  uint64
		ok bool
	}{{0x1122334455667788, true}, {0x7788, true}, {0, false}, {0, false}} {
		if n, ok := b.word(i); n != want.n || ok != want.ok {
			t.Errorf("range %d: %#x, %v; want %#x, %v", i, n, ok, want.n, want.ok)
		}
	}
}
