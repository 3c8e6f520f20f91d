package page

import (
	"encoding/binary"
	"testing"
	"time"
)

// writeRing writes entries into a ring as a process does.
func writeRing(t testing.TB, m *memory, ring int, from uint64, entries ...[]byte) {
	t.Helper()
	for i, e := range entries {
		at := (from + uint64(i)) % ringEntries
		if _, err := m.file.WriteAt(e, int64(entriesAt+ring*ringEntries*entrySize)+int64(at*entrySize)); err != nil {
			t.Fatal(err)
		}
	}
	writeHead(t, m, ring, from+uint64(len(entries)))
}

func writeHead(t testing.TB, m *memory, ring int, head uint64) {
	t.Helper()
	if _, err := m.file.WriteAt(binary.NativeEndian.AppendUint64(nil, head), int64(ringsAt+ring*ringSize)); err != nil {
		t.Fatal(err)
	}
}

func rawEntry(sequence, method, version, loop uint32, duration, part uint64, runs uint32) []byte {
	return packet(sequence, method, version, loop, duration, part, runs, n32(0), n32(0), n32(77))
}

// Entries are read once, in order; invalid ones are counted.
func TestMemory(t *testing.T) {
	m, err := newMemory(true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.file.Close()
	if m.word(loopsAt) != 1 {
		t.Error("loops are not wanted")
	}
	if err := m.file.Truncate(0); err == nil {
		t.Error("the memory can be cut off")
	}
	var got []entry
	drain := func() {
		t.Helper()
		if err := m.drain(1<<20, func(e *entry) { got = append(got, *e) }); err != nil {
			t.Fatal(err)
		}
	}
	drain()
	writeRing(t, m, 3, 0,
		rawEntry(1, 7, 1, 0, 100, 100, 1),
		rawEntry(9, 7, 1, 0, 100, 100, 1),                // another's number
		rawEntry(3, 7, 1, 2, 100, 101, 1),                // more parts than whole
		rawEntry(4, 7, 1, 2, 100, 90, 0),                 // no iterations
		rawEntry(5, 7, 1, 0, uint64(25*time.Hour), 0, 1), // for ever
		rawEntry(6, 7, 2, 2, 100, 90, 4))
	drain()
	drain()
	if len(got) != 2 || got[0] != (entry{1, 7, 1, 0, 100, 100, 1, 0, 0, 77}) || got[1].loop != 2 || m.ring[3].bad != 4 {
		t.Errorf("%+v, %d bad", got, m.ring[3].bad)
	}
	if tail := m.word(ringsAt + 3*ringSize + tailAt); tail != 6 {
		t.Errorf("the guest sees that %d entries were read, want 6", tail)
	}
	// The process overwrote the counter: nothing is read, and reading resumes from there.
	got = nil
	writeHead(t, m, 3, 1<<63)
	drain()
	if len(got) != 0 || m.ring[3].bad != 5 || m.ring[3].tail != 1<<63 {
		t.Errorf("%d entries of a damaged ring, %d bad", len(got), m.ring[3].bad)
	}
	writeRing(t, m, 3, 1<<63, rawEntry(1, 7, 1, 0, 100, 100, 1))
	if drain(); len(got) != 1 {
		t.Error("a ring does not recover")
	}
	// The table of methods can be searched in the way of the header.
	ids := []uint32{7, 7 + 1<<31, 1<<32 - 1, 5000}
	if err := m.audit(ids); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		i := auditedSlot(id)
		for n := 0; m.word(auditedAt+4*int64(i)) != id; n++ {
			if i = (i + 1) % auditedSlots; n > len(ids) {
				t.Fatalf("method %d is not in the table", id)
			}
		}
	}
}

// FuzzTimings: whatever a process writes becomes a bounded number of valid timings of audited
// methods.
func FuzzTimings(f *testing.F) {
	f.Add(uint64(2), append(rawEntry(1, 7, 1, 0, 100, 100, 1), rawEntry(2, 0, 0, 1, 60, 60, 1)...))
	f.Add(uint64(1<<64-1), rawEntry(0, 7, 1, 3, 1<<63, 0, 1<<31))
	m, err := newMemory(true)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, head uint64, entries []byte) {
		*m = memory{file: m.file}
		entries = entries[:min(len(entries), 64*entrySize)]
		if _, err := m.file.WriteAt(entries, entriesAt); err != nil {
			t.Fatal(err)
		}
		writeHead(t, m, 0, head)
		guest := &timed{memory: m, methods: map[uint32]*timedMethod{7: {name: "f", versions: map[uint32]bool{},
			loops: map[uint32]bool{}}},
			names: map[[2]uint32]string{}, lost: map[string]uint64{}}
		n := 0
		err := m.drain(takeAtMost, func(e *entry) {
			one, ok := guest.timing(e)
			if !ok {
				return
			}
			n++
			if one.Region.Method != "f" || one.Runs == 0 || one.Thread < 0 || one.Duration > 24*time.Hour ||
				one.Part > one.Duration+time.Millisecond {
				t.Fatalf("%+v", one)
			}
		})
		if err != nil || n > ringEntries || m.ring[0].tail != head {
			t.Fatalf("%d timings, %v", n, err)
		}
	})
}
