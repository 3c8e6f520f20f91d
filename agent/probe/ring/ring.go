package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// errMalformed: the kernel never writes such a record.
var errMalformed = errors.New("ring buffer is malformed")

// A buffer is the memory of one BPF_MAP_TYPE_RINGBUF, as laid out by kernel/bpf/ringbuf.c: a page
// with the reader's position, a page with the writers', and the records. These are mapped twice in
// a row, so that every record is contiguous. Positions count bytes since the map was created.
type buffer struct {
	consumer, producer *uint64
	data               []byte // twice the ring's size
	mapped             [][]byte
}

const (
	headerSize = 8       // header of a record: its length with the flags, and an offset that readers do not use
	busyFlag   = 1 << 31 // BPF_RINGBUF_BUSY_BIT: the record is being written
	deadFlag   = 1 << 30 // BPF_RINGBUF_DISCARD_BIT: it was given up
)

// openBuffer maps a ring. The caller closes it.
func openBuffer(m *ebpf.Map) (*buffer, error) {
	if m.Type() != ebpf.RingBuf {
		return nil, fmt.Errorf("%v is no ring buffer: %w", m, unix.EINVAL)
	}
	page, size := os.Getpagesize(), int(m.MaxEntries())
	b := &buffer{}
	own, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the reader's page of %v: %w", m, err)
	}
	b.mapped = append(b.mapped, own)
	theirs, err := unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map the records of %v: %w", m, err), b.close())
	}
	b.mapped = append(b.mapped, theirs)
	b.consumer = (*uint64)(unsafe.Pointer(unsafe.SliceData(own)))
	b.producer = (*uint64)(unsafe.Pointer(unsafe.SliceData(theirs)))
	b.data = theirs[page:]
	return b, nil
}

func (b *buffer) close() error {
	var errs []error
	for _, m := range b.mapped {
		errs = append(errs, unix.Munmap(m))
	}
	b.mapped = nil
	return errors.Join(errs...)
}

type state uint8

const (
	empty state = iota
	busy        // a record is there but unfinished
	ready
)

// A head is the next record of a ring.
type head struct {
	state  state
	record []byte // record in the ring
	end    uint64 // the position behind it
}

// peek returns the oldest record, which stays in the ring until take is called with its end.
func (b *buffer) peek() (head, error) {
	at := atomic.LoadUint64(b.consumer)
	for {
		there := atomic.LoadUint64(b.producer) - at
		if there == 0 {
			return head{state: empty}, nil
		}
		start := at & uint64(len(b.data)/2-1)
		// Atomic, so that what the writer wrote before it is visible.
		header := atomic.LoadUint32((*uint32)(unsafe.Pointer(&b.data[start])))
		if header&busyFlag != 0 {
			return head{state: busy}, nil
		}
		size := uint64(header &^ deadFlag)
		whole := headerSize + (size+7)&^7
		if whole > there || whole > uint64(len(b.data)/2) {
			return head{}, fmt.Errorf("a record of %d bytes, %d are there: %w", size, there, errMalformed)
		}
		at += whole
		if header&deadFlag == 0 {
			return head{ready, b.data[start+headerSize:][:size], at}, nil
		}
		b.take(at)
	}
}

// take releases the space up to a position to the writers.
func (b *buffer) take(end uint64) { atomic.StoreUint64(b.consumer, end) }

// bytes is the used size of the ring.
func (b *buffer) bytes() uint64 { return atomic.LoadUint64(b.producer) - atomic.LoadUint64(b.consumer) }

// recordTime is the time at the beginning of a record, needed to merge several rings.
func recordTime(record []byte) uint64 {
	if len(record) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(record)
}
