package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A fakeRing is a ring in plain memory; the test acts as its writers. A record must not wrap.
type fakeRing struct {
	buffer
	positions [2]uint64
}

func newFakeRing() *fakeRing {
	f := &fakeRing{}
	f.consumer, f.producer = &f.positions[0], &f.positions[1]
	f.data = make([]byte, 2*4096)
	return f
}

// reserve begins a record and returns the functions that end it.
func (f *fakeRing) reserve(record []byte) (submit, discard func()) {
	at := f.positions[1] & 4095
	header := (*uint32)(unsafe.Pointer(&f.data[at]))
	atomic.StoreUint32(header, uint32(len(record))|busyFlag)
	copy(f.data[at+headerSize:], record)
	atomic.AddUint64(f.producer, headerSize+uint64(len(record)+7)&^7)
	return func() { atomic.StoreUint32(header, uint32(len(record))) },
		func() { atomic.StoreUint32(header, uint32(len(record))|deadFlag) }
}

func (f *fakeRing) write(record []byte) {
	submit, _ := f.reserve(record)
	submit()
}

// at is a record with that time.
func at(time uint64, more ...byte) []byte {
	return append(binary.NativeEndian.AppendUint64(nil, time), more...)
}

// readerOf reads fake rings, which send no wakeups.
func readerOf(t testing.TB, rings ...*fakeRing) *Reader {
	t.Helper()
	r, _, err := newReader()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rings {
		r.buffers = append(r.buffers, &f.buffer)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// next reads a record that must exist.
func next(t testing.TB, r *Reader) uint64 {
	t.Helper()
	record, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	return recordTime(record)
}

func TestReaderOrder(t *testing.T) {
	a, b := newFakeRing(), newFakeRing()
	r := readerOf(t, a, b)
	for _, time := range []uint64{1, 4, 5, 9} {
		a.write(at(time))
	}
	for _, time := range []uint64{2, 3, 7} {
		b.write(at(time, 1, 2, 3)) // padded to 16 bytes
	}
	_, discard := a.reserve(at(10))
	discard()
	for _, want := range []uint64{1, 2, 3, 4, 5, 7, 9} {
		if r.Empty() {
			t.Errorf("Empty before the record of time %d", want)
		}
		if got := next(t, r); got != want {
			t.Fatalf("record of time %d, want %d", got, want)
		}
	}
	r.SetDeadline(time.Unix(1, 0))
	if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the end: %v, want %v", err, os.ErrDeadlineExceeded)
	}
	if !r.Empty() || a.positions[0] != a.positions[1] || b.positions[0] != b.positions[1] {
		t.Errorf("positions %v and %v: what was read is not given back", a.positions, b.positions)
	}
}

// A ring wraps around many times.
func TestReaderWraps(t *testing.T) {
	a := newFakeRing()
	r := readerOf(t, a)
	for i := range uint64(4096) {
		a.write(at(i))
		if got := next(t, r); got != i {
			t.Fatalf("record of time %d, want %d", got, i)
		}
	}
}

// While a record is unfinished, the reader sleeps, and returns nothing that may be younger.
func TestReaderWaitsForWriter(t *testing.T) {
	a, b := newFakeRing(), newFakeRing()
	r := readerOf(t, a, b)
	submit, _ := a.reserve(at(1))
	b.write(at(2))
	go func() {
		if err := wait.Until(t.Context(), wait.Long, "ten pauses", func() (bool, error) {
			return r.Stats().Pauses >= 10, nil
		}); err != nil {
			t.Error(err)
		}
		submit()
	}()
	for want := range uint64(2) {
		if got := next(t, r); got != want+1 {
			t.Errorf("record of time %d, want %d", got, want+1)
		}
	}
}

// A deadline holds while a record is unfinished, and a flush does not wait forever.
func TestReaderUnfinished(t *testing.T) {
	a := newFakeRing()
	r := readerOf(t, a)
	submit, _ := a.reserve(at(1))
	r.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want %v", err, os.ErrDeadlineExceeded)
	}
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, ErrFlushed) {
		t.Errorf("%v, want %v", err, ErrFlushed)
	}
	if n := r.Stats().Unfinished; n != 1 {
		t.Errorf("%d flushes were cut short, want 1", n)
	}
	submit()
	if got := next(t, r); got != 1 {
		t.Errorf("record of time %d, want 1", got)
	}
}

// Flush ends a waiting Next, after all present records; Close ends it for good.
func TestReaderFlush(t *testing.T) {
	a := newFakeRing()
	r := readerOf(t, a)
	for range 100 {
		a.write(at(1))
		a.write(at(2))
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		if first, second := next(t, r), next(t, r); first != 1 || second != 2 {
			t.Fatalf("%d and %d, want 1 and 2", first, second)
		}
		if _, err := r.Next(); !errors.Is(err, ErrFlushed) {
			t.Fatalf("%v, want %v", err, ErrFlushed)
		}
		go r.Flush()
		if _, err := r.Next(); !errors.Is(err, ErrFlushed) {
			t.Fatalf("%v, want %v", err, ErrFlushed)
		}
	}
	go r.Close()
	if _, err := r.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v, want %v", err, os.ErrClosed)
	}
	if err := r.Flush(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Flush of a closed reader: %v", err)
	}
}

// Malformed headers, which no kernel writes, do not make the reader leave the memory.
func TestReaderMalformed(t *testing.T) {
	for _, size := range []uint32{4096, 1 << 29, 9} {
		a := newFakeRing()
		r := readerOf(t, a)
		a.write(at(1))
		binary.NativeEndian.PutUint32(a.data, size)
		if _, err := r.Next(); !errors.Is(err, errMalformed) {
			t.Errorf("a record of %d bytes: %v, want %v", size, err, errMalformed)
		}
	}
}

// BenchmarkNext reads samples of 24 frames, of one ring and of two.
func BenchmarkNext(b *testing.B) {
	for n := range 2 {
		b.Run(fmt.Sprintf("rings=%d", n+1), func(b *testing.B) {
			rings := []*fakeRing{newFakeRing(), newFakeRing()}[:n+1]
			r := readerOf(b, rings...)
			const size = 256 // with the header: none wraps
			for _, f := range rings {
				for range len(f.data) / 2 / size {
					f.write(at(1, make([]byte, size-headerSize-8)...))
				}
				f.positions[1] = size
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				next(b, r)
				// What was read is there again.
				for _, f := range rings {
					atomic.StoreUint64(f.producer, *f.consumer+size)
				}
			}
		})
	}
}
