package vmstructs

import (
	"bytes"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
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

// counted counts reads.
type counted struct {
	vmruntime.Memory
	reads int
}

func (c *counted) Read(addr uint64, p []byte) error {
	c.reads++
	return c.Memory.Read(addr, p)
}

// Objects near each other are read together; those at the edge of a page, and on a page that cannot
// be read as a whole, by themselves.
func TestNearby(t *testing.T) {
	m := &vmtest.Image{Base: PageSize}
	m.Put(make([]byte, 2*PageSize+16))
	first, last := m.Words(1, 2, 3, 4), m.Words(5, 6)
	copied := m.Memory()
	mem := &counted{Memory: copied}
	near := Nearby{Reader: Reader{mem}}
	for _, c := range []struct {
		addr, n uint64
		reads   int // reads that are made so far
	}{
		{PageSize, 40, 1}, {PageSize + 4000, 96, 1}, {2*PageSize - 8, 16, 2}, {2 * PageSize, 8, 3}, {PageSize, 8, 4},
		{first, 32, 6}, {last, 16, 8}, // the page ends early
	} {
		got, err := near.Bytes(c.addr, c.n)
		want, _ := Reader{copied}.Bytes(c.addr, c.n)
		if err != nil || !bytes.Equal(got, want) || mem.reads != c.reads {
			t.Errorf("%d bytes at %#x: %x, %v after %d reads; want %x after %d", c.n, c.addr, got, err, mem.reads, want,
				c.reads)
		}
	}
	if _, err := near.Bytes(0xdead0000, 8); err == nil {
		t.Error("memory that is not there was read")
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
